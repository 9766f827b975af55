// Keeps servers on this machine: a listen without a host binds 127.0.0.1
// instead of every interface. Preloaded with --require.
//
// A listen with a host looks the host up and binds later; a listen without one
// has bound when it returns, and there are programs that ask for their port
// there and then. So a socket is bound first, and listened on.
'use strict';
const net = require('node:net');
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const [first] = args;
  const options = typeof first === 'object' && first !== null ? first : { port: first ?? 0 };
  const port = options.port === undefined ? NaN : Number(options.port);
  const hasHost = options.host !== undefined || (options !== first && typeof args[1] === 'string');
  if (hasHost || !Number.isInteger(port)) return listen.apply(this, args); // a host, a path, a handle
  const callback = args.find((arg) => typeof arg === 'function');
  const handle = net._createServerHandle('127.0.0.1', port, 4, -1);
  if (typeof handle === 'number') {
    return listen.call(this, { ...options, port, host: '127.0.0.1' }, callback); // which tells the error in its own way
  }
  return listen.call(this, handle, callback);
};
