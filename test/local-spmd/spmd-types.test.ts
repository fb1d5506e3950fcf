import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { ValueType } from '../../src/graph/types.ts';
import type { OperandType } from '../../src/local-spmd/operator-types.ts';
import { typeCall } from '../../src/local-spmd/type-call.ts';
import {
  collectiveOf,
  type Primitive,
  primitive,
  redistribution,
  transposeOf,
} from '../../src/mesh/local-types/primitives.ts';
import { gradientType } from '../../src/mesh/local-types/types.ts';
import { flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { operators } from '../engines/samples/all.ts';
import { apply } from './support/apply-verbs.ts';
import { ourCall } from './support/operator-calls.ts';
import { isRefusal, readAnswers, type SpmdAnswers } from './support/recorded.ts';
import { type Call, calls, type Cell, cells } from './support/spmd-questions.ts';

/**
 * The tables of verbs and the types of operators against spmd_types 0.3.1 on PyTorch 2.13, as
 * recorded. Every difference is listed with its reason, and the lists are exact: a difference more
 * or less is a failure.
 */
const answers = readAnswers<SpmdAnswers>(
  readFileSync(
    fileURLToPath(new URL('../fixtures/local-spmd/spmd-types.json.gz', import.meta.url)),
  ),
);

function orRefused<T>(run: () => T): T | 'refused' {
  try {
    return run();
  } catch (error) {
    if (error instanceof ShardwrightError) return 'refused';
    throw error;
  }
}

const local = (type: string): string => (type.startsWith('S') ? 'V' : type);
const textOf = ({ op, src, dst, expert }: Cell): string =>
  `${op} ${src}→${dst}${expert === true ? ' expert' : ''}`;

function ourVerb({ op, src, dst, expert }: Cell): Primitive | 'refused' {
  return orRefused(() =>
    op === 'redistribute'
      ? redistribution(src, dst)
      : primitive(op, src, dst, { expert: expert === true }),
  );
}

/** Why a cell that one accepts is refused by the other, by its text without ranks. */
function verbDifference({ op, src, dst, expert }: Cell): string | undefined {
  const cut = (t: string): boolean => t.startsWith('S') || t === 'V';
  if (op !== 'redistribute' && src === 'V' && (op === 'all_reduce' || op === 'reduce_scatter'))
    return 'a reduction of V is accepted there as one of P; here the reinterpret is written';
  if (op === 'reinterpret' && src === 'I' && dst === 'P' && expert !== true)
    return 'accepted there without the flag; it multiplies by the size of the axis';
  if (
    (op === 'convert' || op === 'redistribute') &&
    cut(src) &&
    cut(dst) &&
    local(src) === local(dst) &&
    (src === 'V' || dst === 'V')
  )
    return 'a claim is made or dropped: accepted there, made by the specs of the region here';
  if (op === 'all_to_all' && (src === dst || (src === 'V') !== (dst === 'V')))
    return 'runs there, and means nothing: V beside S(i), or S(i) to itself';
  if (op === 'redistribute' && ['R→I', 'I→P'].includes(`${src}→${dst}`))
    return 'wants no flag there';
  if (op === 'redistribute' && cut(src) && dst === 'P') return 'wants no flag there';
  return undefined;
}

describe('verbs of spmd_types', () => {
  test('every cell: the same types, gradients and collectives, or the same refusal', () => {
    const listed: Record<string, string[]> = {};
    const wrong: string[] = [];
    let same = 0;
    cells.forEach((cell, i) => {
      const answer = answers.cells[i];
      const verb = ourVerb(cell);
      if (verb === 'refused' || isRefusal(answer)) {
        if ((verb === 'refused') === isRefusal(answer)) same++;
        else {
          const reason = verbDifference(cell);
          if (reason === undefined || isRefusal(answer))
            wrong.push(`${textOf(cell)}: ${verb === 'refused' ? 'refused here' : 'refused there'}`);
          else (listed[reason] ??= []).push(textOf(cell));
        }
        return;
      }
      same++;
      const way = transposeOf(verb);
      const collectives = (list: readonly Primitive[]): string[] =>
        list.flatMap(({ op }) => collectiveOf(op) ?? []);
      const ours = [local(verb.dst), gradientType(verb.src), collectives([verb]), collectives(way)];
      const theirs = [answer.type, answer.gradient, answer.forward, answer.backward];
      if (JSON.stringify(ours) !== JSON.stringify(theirs))
        wrong.push(`${textOf(cell)}: ${JSON.stringify(ours)} ${JSON.stringify(theirs)}`);
    });
    expect(wrong).toEqual([]);
    const counts = Object.fromEntries(
      Object.entries(listed).map(([reason, texts]) => [reason, texts.length]),
    );
    expect({ same, ...counts }).toMatchInlineSnapshot(`
      {
        "a claim is made or dropped: accepted there, made by the specs of the region here": 36,
        "a reduction of V is accepted there as one of P; here the reinterpret is written": 15,
        "accepted there without the flag; it multiplies by the size of the axis": 3,
        "runs there, and means nothing: V beside S(i), or S(i) to itself": 18,
        "same": 885,
        "wants no flag there": 15,
      }
    `);
  });
});

describe('values of spmd_types', () => {
  test.each([2, 3, 4])(
    'every verb on %i ranks holds what PyTorch holds, forward and in its gradient',
    (ranks) => {
      const wrong: string[] = [];
      let run = 0;
      cells.forEach((cell, i) => {
        const answer = answers.cells[i];
        const verb = ourVerb(cell);
        if (cell.ranks !== ranks || verb === 'refused' || isRefusal(answer)) return;
        const arrays = (
          rows: readonly (readonly number[])[],
          shape: readonly number[],
        ): NDArray[] => rows.map((row) => fromFlat(shape, Float64Array.from(row)));
        const after = (
          steps: readonly Primitive[],
          rows: readonly (readonly number[])[],
          shape: readonly number[],
        ) => apply(steps, arrays(rows, shape)).map((x) => [...flat(x)].map((v) => v + 0));
        run++;
        const forward = after([verb], answer.input, [ranks, 12]);
        if (JSON.stringify(forward) !== JSON.stringify(plain(answer.output)))
          wrong.push(`${textOf(cell)}: ${JSON.stringify(forward)}`);
        const back = after(transposeOf(verb), answer.upstream, answer.shape);
        if (JSON.stringify(back) !== JSON.stringify(plain(answer.back)))
          wrong.push(`gradient of ${textOf(cell)}: ${JSON.stringify(back)}`);
      });
      expect(wrong).toEqual([]);
      expect(run).toBe(91);
    },
  );
});

/** Without negative zeros. */
const plain = (rows: readonly (readonly number[])[]): number[][] =>
  rows.map((row) => row.map((v) => v + 0));

const typeOf = (call: NonNullable<ReturnType<typeof ourCall>>['call'], name: string): ValueType => {
  const tensor = call.tensors.get(name);
  if (tensor === undefined) throw new Error(`no tensor ${name}`);
  return { kind: 'tensor', dtype: tensor.dtype, shape: tensor.shape };
};

function ourType(question: Call): string | undefined {
  const found = ourCall(question);
  if (found === undefined) return undefined;
  const { call, of } = found;
  const names = [...call.tensors.keys()];
  const typed = (name: string): OperandType => {
    const operand = question.operands[of[names.indexOf(name)]];
    return (operand.length === 2 ? operand[1] : operand) as OperandType;
  };
  const types = orRefused(() =>
    typeCall(operators, call, (name) => typeOf(call, name), typed, 'manual'),
  );
  return types === 'refused' ? types : types[0];
}

/** Why a call is typed in another way there. */
function callDifference({ op, operands }: Call, theirs: string): string | undefined {
  const text = operands.join(' ');
  if (/nI|nR/.test(text) && /[IR]|V|P/.test(text))
    return 'numbers get no gradient there, so one that is I is R too; here a number with a type is a tensor';
  if (op === 'where' && /^[IR] P P$/.test(text))
    return 'a choice between addends by what is equal is linear; not registered there';
  if (theirs === 'refused' && ['slice', 'linear', 'linear.bias'].includes(op))
    return 'not registered as linear there';
  return undefined;
}

describe('operators of spmd_types', () => {
  test('every operator on every combination of types: the same type or the same refusal', () => {
    const listed: Record<string, string[]> = {};
    const wrong: string[] = [];
    const absent = new Set<string>();
    let same = 0;
    calls.forEach((question, i) => {
      const answer = answers.calls[i];
      const theirs = isRefusal(answer) ? 'refused' : answer.type;
      const ours = ourType(question);
      if (ours === undefined) absent.add(question.op);
      else if (ours === theirs) same++;
      else {
        const reason = callDifference(question, theirs);
        const text = `${question.op}(${question.operands.join(', ')}): ${ours} here, ${theirs} there`;
        if (reason === undefined) wrong.push(text);
        else (listed[reason] ??= []).push(text);
      }
    });
    expect(wrong).toEqual([]);
    // Only PyTorch has results that are written into a given tensor; graphs have none.
    expect([...absent]).toEqual(['add.out', 'mul.out']);
    const counts = Object.fromEntries(
      Object.entries(listed).map(([reason, texts]) => [reason, texts.length]),
    );
    expect({ same, ...counts }).toMatchInlineSnapshot(`
      {
        "a choice between addends by what is equal is linear; not registered there": 2,
        "not registered as linear there": 5,
        "numbers get no gradient there, so one that is I is R too; here a number with a type is a tensor": 41,
        "same": 1176,
      }
    `);
  });
});
