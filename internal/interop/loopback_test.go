package interop

import (
	"context"
	"strings"
	"testing"
	"time"
)

// What is pinned listens on every interface unless it is told not to.
func TestServersOfOthersListenOnThisMachineAlone(t *testing.T) {
	const script = `
		const net = require('node:net'), http = require('node:http');
		const path = process.argv[1];
		for (const listen of [
			(s) => s.listen(0),
			(s) => s.listen('0'),
			(s) => s.listen(),
			(s) => s.listen({ port: 0 }),
			(s) => s.listen(0, () => console.log('called')),
			(s) => s.listen(0, 10, () => console.log('called')),
		]) {
			const server = listen(http.createServer());
			console.log(server.address().address); // there and then
			server.once('listening', () => server.close());
		}
		const named = net.createServer().listen(path, () => {
			console.log(named.address() === path);
			named.close();
		});
		const taken = net.createServer().listen(0);
		const second = net.createServer().listen(taken.address().port);
		second.on('error', (error) => {
			console.log(error.code);
			taken.close();
		});`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := install(t).Command(ctx, "-e", script, t.TempDir()+"/socket").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	count := map[string]int{}
	for said := range strings.FieldsSeq(string(out)) {
		count[said]++
	}
	if count["127.0.0.1"] != 6 || count["called"] != 2 || count["true"] != 1 || count["EADDRINUSE"] != 1 || len(count) != 4 {
		t.Errorf("%s", out)
	}
}
