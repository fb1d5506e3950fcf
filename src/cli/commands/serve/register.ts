/** Registers `serve` and `batch`. Their code is loaded when they run. */

import { on, or, value } from '../../input/flags/flag.ts';
import { countFrom } from '../../input/flags/read.ts';
import { command } from '../flags/add-command.ts';

const SERVE_COMMAND = {
  port: or(
    value('--port <n>', 'port of 127.0.0.1; 0 takes one that is free', countFrom(0, 65_535)),
    '8017',
  ),
  open: on('--open', 'open the page in a browser'),
  allowPrograms: on(
    '--allow-programs',
    'run program files (.ts, .js) that the page sends; default: refuse them',
  ),
};

export const registerServe = command({
  usage: 'serve',
  summary: 'the planner as a page for browsers of this machine',
  description:
    'Serves the planner as a page to browsers of this machine alone. Large files are planned ' +
    'with all of its threads. Prints an address with a token, which only who opens it has; ' +
    'Ctrl+C ends it.\n\nExample:\n  $ ' +
    'shardwright serve --open',
  flags: SERVE_COMMAND,
  run: async ({ port, open, allowPrograms }, { io }) =>
    (await import('./serve.ts')).serveCommand(
      { port, open: open === true, allowPrograms: allowPrograms === true },
      io,
    ),
});

export const registerBatch = command({
  usage: 'batch',
  summary: 'command lines that come on stdin, in one process',
  description:
    'Runs command lines one after another in one process, for programs that ask often. A line of ' +
    'stdin is {"argv": [...], "cwd": "..."}. Lines of stdout are what it prints, ' +
    '{"stdout": text} and {"stderr": text}, and then {"code": n}. ' +
    'It ends with stdin.\n\nExample:\n  $ ' +
    'echo \'{"argv": ["rules", "--names"]}\' | shardwright batch',
  flags: {},
  run: async (_, { io, runCli }) => (await import('./batch.ts')).batchCommand(io, runCli),
});
