// A server with the official TypeScript SDK, whose tools, prompt and resource
// ask in rounds. It serves revision 2026-07-28 alone, and says where once it
// listens; with --stdio over standard input and output, in both eras.
//
// It keeps nothing between requests. What a tool did, with which answers, is in
// its result.
import { createServer } from 'node:http';
import { randomBytes } from 'node:crypto';
import { McpServer, createMcpHandler, createRequestStateCodec, inputRequired, acceptedContent } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';
import * as z from 'zod';

// Signs what comes back in requestState, and refuses what does not verify.
const state = createRequestStateCodec({ key: randomBytes(32) });

const text = (said) => ({ content: [{ type: 'text', text: said }] });
const form = (name, type) => ({ type: 'object', properties: { [name]: { type } }, required: [name] });
const ask = (message, name, type = 'string') => inputRequired.elicit({ message, requestedSchema: form(name, type) });
// Of a question: 'accept' with its content, 'decline', 'cancel', or undefined
// if it has not been answered.
const answer = (ctx, key) => ctx.mcpReq.inputResponses?.[key];

// confirmed asks a yes or no and completes with whatever it is.
function confirm({ what }, ctx) {
  const said = answer(ctx, 'confirm');
  if (said === undefined) {
    return inputRequired({ inputRequests: { confirm: ask(`Do ${what}?`, 'ok', 'boolean') } });
  }
  return text(said.action === 'accept' ? `${what}: ${said.content.ok}` : `${what}: ${said.action}`);
}

// twoRounds asks for a name, keeps it in requestState, and asks for a colour.
async function twoRounds(_args, ctx) {
  const known = ctx.mcpReq.requestState() ?? { step: 0 };
  const name = known.name ?? acceptedContent(ctx.mcpReq.inputResponses, 'name')?.name;
  if (name === undefined) {
    return inputRequired({ inputRequests: { name: ask('Your name?', 'name') }, requestState: await state.mint({ step: 1 }) });
  }
  const colour = known.step === 2 ? acceptedContent(ctx.mcpReq.inputResponses, 'colour')?.colour : undefined;
  if (colour === undefined) {
    return inputRequired({
      inputRequests: { colour: ask(`Your colour, ${name}?`, 'colour') },
      requestState: await state.mint({ step: 2, name }),
    });
  }
  return text(`${name} likes ${colour}`);
}

// several asks three things at once.
function several(_args, ctx) {
  const said = ['street', 'floor', 'lift'].map((key) => answer(ctx, key));
  if (said.some((one) => one === undefined)) {
    return inputRequired({
      inputRequests: {
        street: ask('Which street?', 'street'),
        floor: ask('Which floor?', 'floor', 'integer'),
        lift: ask('Is there a lift?', 'lift', 'boolean'),
      },
    });
  }
  return text(said.map((one) => (one.action === 'accept' ? JSON.stringify(one.content) : one.action)).join(' '));
}

// later asks nothing and wants to be called again with its state, twice.
async function later(_args, ctx) {
  const { turn } = ctx.mcpReq.requestState() ?? { turn: 0 };
  if (turn < 2) return inputRequired({ requestState: await state.mint({ turn: turn + 1 }) });
  return text(`called ${turn} times again`);
}

function visit(_args, ctx) {
  const said = answer(ctx, 'page');
  if (said === undefined) {
    return inputRequired({
      inputRequests: { page: inputRequired.elicitUrl({ message: 'Open the page', url: 'https://desk.example/visit?id=1' }) },
    });
  }
  return text(`the page: ${said.action}`);
}

const subject = (ctx) => acceptedContent(ctx.mcpReq.inputResponses, 'subject')?.subject;
const askSubject = () => inputRequired({ inputRequests: { subject: ask('What about?', 'subject') } });

function make() {
  const server = new McpServer(
    { name: 'mrtr', version: '1' },
    { capabilities: { tools: {}, prompts: {}, resources: {} }, requestState: { verify: state.verify } },
  );
  const tool = (name, description, inputSchema, run) => server.registerTool(name, { description, inputSchema: z.object(inputSchema) }, run);
  tool('confirm', 'Asks for a yes or no, and completes.', { what: z.string() }, confirm);
  tool('two_rounds', 'Asks twice, with requestState.', {}, twoRounds);
  tool('several', 'Asks three things at once.', {}, several);
  tool('later', 'Has rounds that ask nothing.', {}, later);
  tool('visit', 'Asks to open a page.', {}, visit);
  tool('plain', 'Adds two numbers.', { a: z.number(), b: z.number() }, ({ a, b }) => text(`${a + b}`));
  tool('broken', 'Is an error.', {}, () => ({ ...text('it is broken'), isError: true }));
  server.registerPrompt('letter', { description: 'Asks what it is about.' }, (ctx) => {
    const about = subject(ctx);
    if (about === undefined) return askSubject();
    return { messages: [{ role: 'user', content: { type: 'text', text: `a letter about ${about}` } }] };
  });
  server.registerResource('note', 'mrtr://note', { description: 'Asks what it is about.' }, (uri, ctx) => {
    const about = subject(ctx);
    if (about === undefined) return askSubject();
    return { contents: [{ uri: uri.href, text: `a note about ${about}` }] };
  });
  return server;
}

if (process.argv.includes('--stdio')) {
  serveStdio(make);
} else {
  const handle = toNodeHandler(createMcpHandler(make, { legacy: 'reject', onerror: (error) => console.error(error) }));
  const web = createServer((req, res) => (new URL(req.url, 'http://localhost').pathname === '/mcp' ? handle(req, res) : res.writeHead(404).end()));
  web.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${web.address().port}/mcp`));
  process.on('SIGTERM', () => process.exit(0));
}
