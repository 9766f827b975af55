// Calls a server with the official TypeScript client, and prints what came of
// it, a line of JSON each.
//
//   client.mjs PLAN URL            over Streamable HTTP
//   client.mjs PLAN COMMAND ARGS…  over stdio
//
// PLAN is JSON: era ("modern" or "legacy"), token, calls (each {tool,
// arguments}, {prompt} or {resource}), and answers: what to answer to a
// question, by its message. A question that has none is dismissed. The rounds of
// a modern call are made by the client itself; those of a tool with repeat are
// made here, and each retry is sent twice. With unlisted, tools are not listed
// first: this client cannot make rounds by hand of a tool with an output schema
// that it knows.
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
  },
);
function answer({ params }) {
  say({ asked: params.message });
  return plan.answers?.[params.message] ?? { action: 'cancel' };
}
client.setRequestHandler('elicitation/create', answer);

// repeated makes a call's rounds, and says the result of every request.
async function repeated(tool) {
  const call = { name: tool.tool, arguments: tool.arguments ?? {} };
  for (let retry = call; ; ) {
    const results = [await client.callTool(retry, { allowInputRequired: true })];
    if (retry !== call) results.push(await client.callTool(retry, { allowInputRequired: true }));
    for (const result of results) say({ result });
    const [{ resultType, inputRequests, requestState }] = results;
    if (resultType !== 'input_required') return;
    const inputResponses = Object.fromEntries(Object.entries(inputRequests).map(([key, request]) => [key, answer(request)]));
    retry = { ...call, inputResponses, requestState };
  }
}

const transport = target.startsWith('http:')
  ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${plan.token}` } } })
  : new StdioClientTransport({ command: target, args, stderr: 'inherit' });
await client.connect(transport);
say({ era: client.getProtocolEra() });
if (!plan.unlisted) await client.listTools();

for (const call of plan.calls) {
  try {
    if (call.repeat) await repeated(call);
    else if (call.tool) say({ result: await client.callTool({ name: call.tool, arguments: call.arguments ?? {} }) });
    else if (call.prompt) say({ result: await client.getPrompt({ name: call.prompt }) });
    else say({ result: await client.readResource({ uri: call.resource }) });
  } catch (error) {
    say({ error: { message: error.message, code: error.code, data: error.data } });
  }
}
await client.close();
