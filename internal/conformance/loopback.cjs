// Keeps the suite's own mock servers on this machine: a listen without a host
// binds 127.0.0.1 instead of every interface. Preloaded with --require.
'use strict';
const net = require('node:net');
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const [first] = args;
  if (typeof first === 'object' && first !== null) {
    if (first.port !== undefined && first.host === undefined) args[0] = { ...first, host: '127.0.0.1' };
  } else if (typeof first !== 'string' && typeof args[1] !== 'string') {
    args.splice(1, 0, '127.0.0.1'); // listen(port, ...): the host goes after the port
  }
  return listen.apply(this, args);
};
