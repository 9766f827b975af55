// Calls a server with the official TypeScript client, and prints what came of
// it, a line of JSON each.
//
//   client.mjs PLAN URL            over Streamable HTTP
//   client.mjs PLAN COMMAND ARGS…  over stdio
//
// PLAN is JSON: era ("modern" or "legacy"), token, rounds (how many at most),
// calls (each {tool, arguments}, {prompt} or {resource}), and answers: what to
// answer to a question, by its message. A question that has none is dismissed.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const plan = JSON.parse(process.argv[2]);
const [target, ...args] = process.argv.slice(3);
const say = (line) => console.log(JSON.stringify(line));

const client = new Client(
  { name: 'interop', version: '1' },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: plan.era === 'modern' ? { pin: '2026-07-28' } : 'legacy' },
    inputRequired: { maxRounds: plan.rounds ?? 10 },
  },
);
client.setRequestHandler('elicitation/create', ({ params }) => {
  say({ asked: params.message, schema: params.requestedSchema });
  return plan.answers?.[params.message] ?? { action: 'cancel' };
});

const transport = target.startsWith('http:')
  ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${plan.token}` } } })
  : new StdioClientTransport({ command: target, args, stderr: 'inherit' });
await client.connect(transport);
say({ era: client.getProtocolEra(), tools: (await client.listTools()).tools.map((tool) => tool.name) });

for (const call of plan.calls) {
  try {
    if (call.tool) say({ result: await client.callTool({ name: call.tool, arguments: call.arguments ?? {} }) });
    else if (call.prompt) say({ result: await client.getPrompt({ name: call.prompt }) });
    else say({ result: await client.readResource({ uri: call.resource }) });
  } catch (error) {
    say({ error: { message: error.message, code: error.code, data: error.data } });
  }
}
await client.close();
