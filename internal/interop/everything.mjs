// Starts @modelcontextprotocol/server-everything over Streamable HTTP on a free
// port, and says which: it prints the port it was told, and cannot be told 0.
// Preloaded by loopback.cjs, it is on this machine alone.
import net from 'node:net';

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  this.once('listening', () => console.log(`listening on http://127.0.0.1:${this.address().port}/mcp`));
  return listen.apply(this, args);
};
process.env.PORT = '0';
process.argv.splice(2, Infinity, 'streamableHttp');
process.on('SIGTERM', () => process.exit(0));
await import('@modelcontextprotocol/server-everything/dist/index.js');
