import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type ClientRequest, request as ask, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { CommandLine } from '../../../../src/cli/commands/serve/run-command.ts';
import { startServer } from '../../../../src/cli/commands/serve/serve.ts';

/** Stands for the command line: says what it was asked, and fails. */
const ECHO: CommandLine = [
  process.execPath,
  '-e',
  'console.error("ran " + process.argv[1]); process.exitCode = 2;',
];
const QUESTION = {
  mesh: 'dp=2',
  cluster: 'dgx-h100',
  memory: '',
  batch: '',
  sequence: '',
  layers: '',
  pins: [],
};

const folder = mkdtempSync(join(tmpdir(), 'shardwright-page-'));
writeFileSync(join(folder, 'index.html'), '<html><head></head><body>page</body></html>');
writeFileSync(join(folder, 'page.js'), '1;');
const servers: Server[] = [];
const start = async (allowPrograms: boolean): Promise<URL> => {
  const { server, address } = await startServer({
    port: 0,
    allowPrograms,
    folder,
    commandLine: ECHO,
  });
  servers.push(server);
  return new URL(address);
};
let address: URL;
let cookie = '';
beforeAll(async () => {
  address = await start(false);
  cookie = await cookieOf(address);
});
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(folder, { recursive: true, force: true });
});

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly cookies: readonly string[];
}

/** Sends the head of a request; the body is the caller's to send. */
function open(
  to: URL,
  path: string,
  headers: Readonly<Record<string, string>>,
  method: string,
): { readonly sent: ClientRequest; readonly answered: Promise<Answer> } {
  const sent = ask({ host: to.hostname, port: to.port, path, method, headers });
  const answered = new Promise<Answer>((resolve, reject) => {
    sent.on('error', reject);
    sent.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece: string) => (text += piece));
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          text,
          cookies: response.headers['set-cookie'] ?? [],
        }),
      );
    });
  });
  return { sent, answered };
}

function answer(
  to: URL,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
  body = '',
): Promise<Answer> {
  const { sent, answered } = open(to, path, headers, method);
  sent.end(body);
  return answered;
}

async function cookieOf(to: URL): Promise<string> {
  const { status, text, cookies } = await answer(to, to.pathname + to.search);
  expect([status, cookies.length]).toEqual([200, 1]);
  expect(text).toContain('content="0; url=/"');
  expect(cookies[0]).toMatch(/^shardwright-\d+=\w{48}; Path=\/; HttpOnly; SameSite=Strict$/);
  return cookies[0].split(';')[0];
}

const planHeaders = (own: string, name: string): Record<string, string> => ({
  cookie: own,
  'x-question': encodeURIComponent(JSON.stringify({ ...QUESTION, name })),
});

describe('the server of the page', () => {
  it('answers nobody without the token, and says it in no answer', async () => {
    const token = address.searchParams.get('token') ?? '';
    expect(token).toMatch(/^\w{48}$/);
    const wrong = token.replace(/./, (c) => (c === '0' ? '1' : '0'));
    for (const [path, headers] of [
      ['/', {}],
      ['/page.js', {}],
      [`/?token=${wrong}`, {}],
      ['/?token=', {}],
      ['/', { cookie: `shardwright-${address.port}=${wrong}` }],
      ['/', { 'x-shardwright-token': token }],
    ] as const) {
      const { status, text, cookies } = await answer(address, path, headers);
      expect([status, cookies], path).toEqual([403, []]);
      expect(text).not.toContain(token);
    }
    expect((await answer(address, 'http://[/', { cookie })).status).toBe(400);
    const page = await answer(address, '/', { cookie });
    expect(page.status).toBe(200);
    expect(page.text).toContain('name="shardwright-planner"');
    expect(page.text).not.toContain(token);
    expect((await answer(address, '/plan', planHeaders('', 'x.swg'), 'POST', 'x')).status).toBe(
      403,
    );
    expect((await answer(address, '/ask', {}, 'POST')).status).toBe(403);
  });

  it.each<[string, unknown, string, string]>([
    [
      '/plan',
      { ...QUESTION, name: 'x.swg', memroy: '' },
      "a question has no field 'memroy'",
      "'memory'",
    ],
    ['/plan', { mesh: '' }, "the question does not state 'name'", 'cluster'],
    ['/plan', { ...QUESTION, name: 'x.swg', pins: [5] }, 'pins.0 of the question', ''],
    ['/plan', [], 'the question is a list', 'x-question'],
    ['/ask', { kind: 'explian' }, "a question is of no kind 'explian'", "'explain'"],
    ['/ask', { kind: 'explain', plan: 'a' }, "does not state 'node'", 'kind, plan, node'],
    ['/ask', { kind: 'explain', plan: 'a', nod: 'b' }, "a question has no field 'nod'", "'node'"],
    [
      '/ask',
      { kind: 'export', plan: 'a', target: 'torch', targte: '' },
      "a question has no field 'targte'",
      "'target'",
    ],
  ])(
    '%s names the field of a question that is wrong: %j',
    async (path, question, message, hint) => {
      const headers = { cookie, 'x-question': encodeURIComponent(JSON.stringify(question)) };
      const { status, text } = await answer(address, path, headers, 'POST', 'x');
      expect(status).toBe(400);
      const { fault } = JSON.parse(text) as {
        fault: { code: string; message: string; hint: string };
      };
      expect(fault.code).toBe('E_USAGE');
      expect(fault.message).toContain(message);
      expect(fault.hint).toContain(hint);
    },
  );

  it('asks the origin of who has the cookie', async () => {
    const headers = { ...planHeaders(cookie, 'x.swg'), origin: 'http://127.0.0.1:1' };
    expect((await answer(address, '/plan', headers, 'POST', 'x')).status).toBe(403);
  });

  it('runs program files only where it was started for them', async () => {
    for (const name of ['x.ts', 'x.js', 'x.mjs', 'x.mts', `${'y'.repeat(90)}.ts`]) {
      const { status, text } = await answer(
        address,
        '/plan',
        planHeaders(cookie, name),
        'POST',
        'x',
      );
      expect(status, name).toBe(403);
      expect(text).toContain('--allow-programs');
    }
    const open = await start(true);
    const allowed = await answer(
      open,
      '/plan',
      planHeaders(await cookieOf(open), 'x.ts'),
      'POST',
      'x',
    );
    expect(allowed.text).toContain('ran plan');
  });

  it('plans a file while others are still being sent', async () => {
    const slow = [1, 2, 3].map(() => {
      const { sent, answered } = open(address, '/plan', planHeaders(cookie, 'slow.swg'), 'POST');
      sent.write('s');
      answered.catch(() => undefined);
      return sent;
    });
    await Promise.all(slow.map((sent) => new Promise((resolve) => sent.once('socket', resolve))));
    const { status, text } = await answer(
      address,
      '/plan',
      planHeaders(cookie, 'x.swg'),
      'POST',
      'x',
    );
    expect([status, text]).toEqual([200, expect.stringContaining('ran plan')]);
    for (const sent of slow) sent.destroy();
  });
});
