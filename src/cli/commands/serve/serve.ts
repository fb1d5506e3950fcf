/**
 * `serve`: gives the built page to browsers of this machine, and plans what they send with the
 * command line itself. In: a port. Out: a server on 127.0.0.1 that answers its own page alone:
 * another name in the Host header, another origin or a missing token is refused, so that no page of
 * a stranger can reach it.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { ShardwrightError } from '../../../errors.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { askPlan } from './ask-plan.ts';
import { KeptPlans } from './kept-plans.ts';
import { planLocally } from './local-plan.ts';
import { pageFile, pageFolder } from './page-files.ts';

const HOST = '127.0.0.1';
const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  wasm: 'application/wasm',
};
/** The page's own policy stands in it; the worker has that of its answer. */
const HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-cache',
};

/** Runs until a signal. @throws E_IO where the page is not built, or the port is taken */
export async function serveCommand(options: { readonly port: number }, io: CliIo): Promise<number> {
  const server = await startServer(options.port);
  io.stdout(`http://${HOST}:${(server.address() as AddressInfo).port}/\n`);
  io.stderr('serving this machine alone; Ctrl+C ends it\n');
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, resolve);
  });
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
  return EXIT.ok;
}

/** @param port 0: one that is free */
export async function startServer(port: number): Promise<Server> {
  const folder = pageFolder();
  const token = randomBytes(24).toString('hex');
  const kept = new KeptPlans();
  const server = createServer((request, response) => {
    answer(request, response, server, folder, token, kept).catch((error: unknown) => {
      refuse(response, 500, error instanceof Error ? error.message : String(error));
    });
  });
  server.once('close', () => kept.close());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) =>
      reject(
        new ShardwrightError('E_IO', `port ${port} cannot be opened: ${error.message}`, {
          hint: 'give another --port, or 0 for one that is free.',
        }),
      ),
    );
    server.listen(port, HOST, resolve);
  });
  return server;
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  server: Server,
  folder: string,
  token: string,
  kept: KeptPlans,
): Promise<void> {
  const { port } = server.address() as AddressInfo;
  const names = [`${HOST}:${port}`, `localhost:${port}`];
  const { host = '', origin } = request.headers;
  // A name that somebody else's DNS leads here comes with its own Host.
  if (!names.includes(host)) return refuse(response, 421, `this server is ${names.join(' or ')}`);
  if (origin !== undefined && origin !== `http://${host}`)
    return refuse(response, 403, 'another origin');
  const { pathname } = new URL(request.url ?? '/', `http://${host}`);
  if (request.method === 'POST' && (pathname === '/plan' || pathname === '/ask')) {
    if (request.headers['x-shardwright-token'] !== token)
      return refuse(response, 403, 'no token of this server');
    return (pathname === '/plan' ? planLocally : askPlan)(request, response, HEADERS, kept);
  }
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return refuse(response, 405, 'GET, or POST /plan, /ask');
  const name = pathname === '/' ? 'index.html' : pathname.slice(1);
  const content = pageFile(folder, name);
  if (content === undefined) return refuse(response, 404, 'there is no such file');
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  const body =
    name === 'index.html'
      ? content
          .toString('utf8')
          .replace('<head>', `<head><meta name="shardwright-token" content="${token}" />`)
      : content;
  response.writeHead(200, { ...HEADERS, 'content-type': type });
  response.end(request.method === 'HEAD' ? undefined : body);
}

function refuse(response: ServerResponse, status: number, why: string): void {
  if (!response.headersSent)
    response.writeHead(status, { ...HEADERS, 'content-type': 'text/plain; charset=utf-8' });
  response.end(`${why}\n`);
}
