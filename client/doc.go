// Package client drives calls of Model Context Protocol servers to their end,
// and remembers them: revision 2026-07-28 has no way to ask a server which
// tasks one has, so that what a client forgets is lost.
//
// A [Client] is for one server, of revision 2026-07-28 or of the 2025 era, over
// any transport of the SDK. [Client.Call] sends a request, puts what the server
// asks to an [Answerer], sends the answers, watches the task if it becomes one,
// and returns the ordinary result. What it knows is in a [Memory] on disk
// before it acts on it, so that a process may end at any moment and another go
// on ([Client.Resume]): nobody is asked again what was answered, nothing is
// answered twice, no task is lost.
//
// A request that may have reached the server is never sent again, unless the
// server is known to recognise it: then the call ends with [ErrUnknown], which
// is a fact, and not with a guess.
package client
