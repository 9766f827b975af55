// Package conformance runs the official MCP conformance suite, pinned by
// package-lock.json, against the fixtures' server in ./server and judges what
// the suite wrote down.
//
// The suite's exit code is not trusted: it is 0 for scenarios that are not
// scored, which are all of those for Tasks, and for warnings. So the judge
// reads each scenario's checks.json. A FAILURE is never accepted; anything else
// that is not SUCCESS needs an entry with a reason in explained.json, and an
// entry that nothing needs is refused too.
package conformance
