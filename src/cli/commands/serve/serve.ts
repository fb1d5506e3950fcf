/**
 * `serve`: gives the built page to browsers of this machine, and plans what they send with the
 * command line itself. The server on 127.0.0.1 answers its own page alone: another name in the Host
 * header, another origin or a missing token is refused, so that no page of a stranger and no other
 * account of the machine can reach it. The token is in the printed address only; a browser that
 * opens it gets it as a cookie.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { messageOf, ShardwrightError } from '../../../errors.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { openFile } from '../../output/open-file.ts';
import { askPlan } from './ask-plan.ts';
import { KeptPlans } from './kept-plans.ts';
import { planLocally } from './local-plan.ts';
import { pageFile, pageFolder } from './page-files.ts';
import type { CommandLine } from './run-command.ts';
import type { Served } from './served.ts';

const HOST = '127.0.0.1';
const HTML = 'text/html; charset=utf-8';
const TYPES: Readonly<Record<string, string>> = {
  html: HTML,
  js: 'text/javascript; charset=utf-8',
  wasm: 'application/wasm',
};
/** The page holds its own policy; the worker has the policy of this response. */
const HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-cache',
};

/** Runs until a signal. @throws E_IO where the page is not built, or the port is taken */
export async function serveCommand(
  options: { readonly port: number; readonly open: boolean; readonly allowPrograms: boolean },
  io: CliIo,
): Promise<number> {
  const { server, address } = await startServer(options);
  io.stdout(`${address}\n`);
  const folder = options.open ? await openPage(address, io) : undefined;
  io.stderr('serving whoever opens this address on this machine; Ctrl+C ends it\n');
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, resolve);
  });
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  return EXIT.ok;
}

/**
 * Opens the address in a browser, by a file that leads to it and that its owner alone can read:
 * every account of the machine sees the words of a command, and the token with them. Resolves to
 * the folder of the file.
 */
async function openPage(address: string, io: CliIo): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-serve-'));
  const file = join(folder, 'open.html');
  const page = `<!doctype html><meta http-equiv="refresh" content="0; url=${address}">`;
  writeFileSync(file, page, { mode: 0o600 });
  await openFile(file, io);
  return folder;
}

interface ServerOptions {
  /** 0: one that is free. */
  readonly port: number;
  readonly allowPrograms: boolean;
  /** Files of the page. Default: the built page. */
  readonly folder?: string;
  /** The command line as a process. Default: this one. */
  readonly commandLine?: CommandLine;
}

/** @throws E_IO where the page is not built, or the port is taken */
export async function startServer({
  port,
  allowPrograms,
  folder = pageFolder(),
  commandLine = [process.execPath, ...process.execArgv, ...process.argv.slice(1, 2)],
}: ServerOptions): Promise<{ readonly server: Server; readonly address: string }> {
  const token = randomBytes(24).toString('hex');
  const served: Served = { headers: HEADERS, kept: new KeptPlans(), commandLine, allowPrograms };
  const server = createServer((request, response) => {
    const { port } = server.address() as AddressInfo;
    answer(request, response, { ...served, port, folder, token }).catch((error: unknown) => {
      refuse(response, 500, messageOf(error));
    });
  });
  server.once('close', () => served.kept.close());
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
  const own = (server.address() as AddressInfo).port;
  return { server, address: `http://${HOST}:${own}/?token=${token}` };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  served: Served & { readonly port: number; readonly folder: string; readonly token: string },
): Promise<void> {
  const { port, folder, token } = served;
  const names = [`${HOST}:${port}`, `localhost:${port}`];
  const { host = '', origin } = request.headers;
  // A name that somebody else's DNS leads here comes with its own Host.
  if (!names.includes(host)) return refuse(response, 421, `this server is ${names.join(' or ')}`);
  if (origin !== undefined && origin !== `http://${host}`)
    return refuse(response, 403, 'another origin');
  const asked = request.url ?? '/';
  if (!URL.canParse(asked, `http://${host}`)) return refuse(response, 400, 'this is no address');
  const { pathname, searchParams } = new URL(asked, `http://${host}`);
  // Cookies know no ports: the name keeps those of two servers apart.
  const cookie = `shardwright-${port}`;
  const given = searchParams.get('token');
  if (pathname === '/' && given !== null && isSame(given, token)) {
    const lasting = `${cookie}=${token}; Path=/; HttpOnly; SameSite=Strict`;
    // The page leads on itself: a redirect would be the request of whoever opened the address, and
    // a browser sends no strict cookie on that of another site, such as the file of `--open`.
    response.writeHead(200, { ...HEADERS, 'content-type': HTML, 'set-cookie': lasting });
    // It names an icon: a browser would ask for one that is not there.
    const icon = '<link rel="icon" href="data:,">';
    response.end(`<!doctype html>${icon}<meta http-equiv="refresh" content="0; url=/">`);
    return;
  }
  if (!isSame(cookieOf(request, cookie), token))
    return refuse(response, 403, 'no token of this server: open the address that it printed');
  if (request.method === 'POST' && pathname === '/plan')
    return planLocally(request, response, served);
  if (request.method === 'POST' && pathname === '/ask') return askPlan(request, response, served);
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
          .replace('<head>', '<head><meta name="shardwright-planner" content="local" />')
      : content;
  response.writeHead(200, { ...HEADERS, 'content-type': type });
  response.end(request.method === 'HEAD' ? undefined : body);
}

function cookieOf(request: IncomingMessage, name: string): string {
  const pairs = (request.headers.cookie ?? '').split(/; */);
  return pairs.find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1) ?? '';
}

/** Takes as long wherever the two differ. */
function isSame(given: string, token: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(token)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function refuse(response: ServerResponse, status: number, why: string): void {
  if (!response.headersSent)
    response.writeHead(status, { ...HEADERS, 'content-type': 'text/plain; charset=utf-8' });
  response.end(`${why}\n`);
}
