import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { shardRule } from '../../src/notations/einsum/shard-rule.ts';
import { isRefusal, readAnswers, type SpmdAnswers } from './support/recorded.ts';
import { type EinsumQuestion, einsums } from './support/spmd-questions.ts';

/** The einsum rule against `rules.einsum` of spmd_types 0.3.1, as recorded. */

const answers = readAnswers<SpmdAnswers>(
  readFileSync(
    fileURLToPath(new URL('../fixtures/local-spmd/spmd-types.json.gz', import.meta.url)),
  ),
);

function ours({ equation, operands }: EinsumQuestion): string {
  const axes = ['dp', 'tp'].slice(0, operands[0].length);
  const { result } = shardRule(
    equation,
    operands.map((o) => o.join('')),
    { axes, mode: 'strict' },
  );
  return result === undefined ? 'refused' : axes.map((axis) => result[axis]).join('');
}

describe('einsums of spmd_types', () => {
  test('692 of them on one and two mesh dims: the same types, the same refusals', () => {
    const different = einsums.flatMap((question, i) => {
      const answer = answers.einsums[i];
      const theirs = isRefusal(answer) ? 'refused' : answer.types.join('');
      return ours(question) === theirs
        ? []
        : [
            `${question.equation} ${JSON.stringify(question.operands)}: ${ours(question)}, ${theirs}`,
          ];
    });
    expect(different).toEqual([]);
    expect(answers.einsums.filter((a) => !isRefusal(a)).length).toBeGreaterThan(100);
  });
});
