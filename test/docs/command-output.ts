import { commandOutput } from '../../scripts/docs-capture.ts';
import { splitWords } from '../../scripts/docs-placements.ts';
import { OwnProcess } from '../support/own-process.ts';

/**
 * What a command line of a document prints. Lines of one command run one after another in the
 * process that tests share, so that modules are loaded once; those with a pipe run in a shell.
 *
 * @throws Error where the command fails
 */
export async function outputOf(command: string): Promise<string> {
  if (command.includes('|')) return commandOutput(command);
  const [name, ...argv] = splitWords(command);
  if (name !== 'shardwright') throw new Error(`no command of ours: ${command}`);
  const { code, out, err } = await OwnProcess.shared().cli(...argv);
  if (code !== 0) throw new Error(`${command} exits ${code}: ${err}`);
  return out.replaceAll(/[ \t]+$/gm, '').trimEnd();
}
