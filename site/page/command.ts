/** The command that asks the same in a terminal. In: a question of a view. Out: its words. */
import type { Question } from '../protocol.ts';
import type { View } from './address.ts';

/** Flags for the fields of the form, and the views whose commands have them. */
const FLAGS: readonly (readonly [field: keyof Question, flag: string, of: readonly View[]])[] = [
  ['memory', '--memory', ['plan', 'program', 'compare', 'tune']],
  ['batch', '--batch', ['plan']],
  ['batch', '--global-batch', ['compare', 'tune']],
  ['sequence', '--seq', ['plan', 'compare', 'tune']],
  ['layers', '--layers', ['plan']],
  ['optimizer', '--optimizer', ['plan', 'program', 'compare']],
  ['schedule', '--schedule', ['plan', 'program']],
  ['microbatches', '--microbatches', ['plan', 'program']],
  ['tokens', '--tokens', ['compare']],
];

/** Views whose command has another name. */
const COMMANDS: Partial<Record<View, string>> = { program: 'plan' };

/**
 * The example that the page opens with is a file of the package.
 *
 * @param given.file name of the file that was given, where the model is one
 * @param given.model that of a configuration which names none
 */
export function commandOf(
  view: View,
  question: Question,
  given: { readonly file: string | undefined; readonly model: string | undefined },
): string {
  const { model, mesh, cluster, devices } = question;
  const source =
    view === 'program'
      ? 'model.ts'
      : view === 'tune'
        ? 'config'
        : model === 'demo'
          ? 'examples/llama3-8b-2l-b16.fx.txt.gz'
          : model === 'file'
            ? (given.file ?? 'model')
            : model;
  const words = ['shardwright', COMMANDS[view] ?? view, source];
  if (view === 'compare' || view === 'tune') words.push('--devices', devices);
  else words.push('--mesh', mesh);
  if (view === 'tune' && given.model !== undefined) words.push('--model', given.model);
  const others = view === 'compare' ? listOf(question.clusters) : [];
  for (const name of [cluster, ...others]) words.push('--cluster', name);
  for (const [name, flag, views] of FLAGS) {
    const value = question[name];
    if (typeof value === 'string' && value !== '' && views.includes(view)) words.push(flag, value);
  }
  if (view === 'compare') for (const price of listOf(question.price)) words.push('--price', price);
  if (view === 'plan' || view === 'program')
    for (const pin of question.pins) words.push('--pin', pin);
  return words.map(shellWord).join(' ');
}

/** Words between commas or blanks. */
function listOf(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '');
}

function shellWord(word: string): string {
  return /^[\w./=,:@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
