/**
 * Registers `completion`, which prints the script of a shell, and `complete`, which that script
 * asks what may come next.
 */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import { EXIT } from '../../output/io.ts';
import { type AddCommand, command } from '../flags/add-command.ts';

export const registerCompletion = command({
  usage: 'completion <shell>',
  summary: 'the completion of bash, zsh or fish, to source or to install',
  description:
    'Prints a script that completes commands, flags, models, clusters and recipes by name.' +
    '\n\nExamples:\n  $ source <(shardwright completion bash)\n  $ shardwright completion fish > ' +
    '~/.config/fish/completions/shardwright.fish',
  flags: {},
  run: async (_, { io }, shell: string) => {
    const { COMPLETION_SCRIPTS: scripts } = await import('./scripts.ts');
    if (!Object.hasOwn(scripts, shell))
      throw new ShardwrightError('E_USAGE', `there is no completion for '${shell}'`, {
        hint: suggestion(shell, Object.keys(scripts), 'shells'),
      });
    io.stdout(scripts[shell as keyof typeof scripts]);
    return EXIT.ok;
  },
});

/** `complete -- WORDS`: a line for each word that may come next, with a tab and what it is. */
export const registerComplete: AddCommand = (parent, session) => {
  parent
    .command('complete', { hidden: true })
    .argument('[words...]')
    .action(async (words: readonly string[]) => {
      const { candidatesFor } = await import('./candidates.ts');
      const { words: found, files } = await candidatesFor(parent, session, words);
      for (const { word, about } of found) session.io.stdout(`${word}\t${about}\n`);
      if (files) session.io.stdout(':files\t\n');
    });
};
