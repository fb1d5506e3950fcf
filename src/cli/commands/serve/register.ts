/** Registers `serve` with the command line. Its code is loaded when it runs. */

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
