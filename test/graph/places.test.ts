import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';

const table = builtinOperators();

const TEXT = `swgraph 1
graph @main {
  in %x: f32[4, 8] input "x"
  in %w: f32[8, 2] parameter "w"
  %mm = aten.mm.default(%x, %w): f32[4, 2] ; forward
  %r = aten.relu.default(%mm): f32[4, 2] ; forward
  out %r output 0
  graph @yes {
    in %a: f32[4, 2] arg 0
    %n = aten.neg.default(%a): f32[4, 2] ; forward
    out %n output 0
  }
}
`;

function told(text: string): string {
  try {
    parseGraph(text, 'g.swg', (node, typeOf) => inferCall(table, node, typeOf));
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    expect(error.details.hint ?? '').not.toBe('');
    expect(text.split('\n')[(error.details.position?.line ?? 0) - 1]).toBe(error.details.excerpt);
    return error.headline;
  }
  throw new Error('the text was not refused');
}

describe('malformed graph text is refused with exact line and column', () => {
  test('the text itself is read', () => {
    expect(parseGraph(TEXT).nodes).toHaveLength(4);
  });

  test.each<[what: string, from: string, to: string, message: string]>([
    [
      'an unknown value',
      '(%x, %w)',
      '(%x, %v)',
      `g.swg:5:29: E_GRAPH_LINT references resolve at mm: uses 'v', which is not defined`,
    ],
    [
      'a duplicate name',
      '%r =',
      '%mm =',
      'g.swg:6:3: E_GRAPH_LINT single definition at mm: the name is defined twice',
    ],
    [
      'a missing parenthesis',
      '(%mm):',
      '(%mm:',
      `g.swg:6:29: E_GRAPH_PARSE expected ',' or ')', found ':'`,
    ],
    [
      'another type',
      '(%mm): f32[4, 2]',
      '(%mm): f32[4, 3]',
      'g.swg:6:32: E_TYPE r: the file says f32[4, 3], but aten.relu.default gives f32[4, 2]',
    ],
    [
      'an unknown role',
      'parameter "w"',
      'paramter "w"',
      `g.swg:4:20: E_GRAPH_PARSE expected a role (parameter, buffer, constant, input, tangent, state, key, arg), found 'paramter'`,
    ],
    [
      'a use before the definition',
      '  %mm =',
      '  %q = aten.neg.default(%mm): f32[4, 2] ; forward\n  %mm =',
      'g.swg:5:25: E_GRAPH_LINT definition before use at q: uses mm, which is defined only later',
    ],
    [
      'values that need each other',
      '(%x, %w)',
      '(%x, %r)',
      'g.swg:5:29: E_GRAPH_LINT no cycles at mm: the values need each other: mm -> r -> mm',
    ],
    [
      'an output of nothing',
      'out %r',
      'out %q',
      `g.swg:7:7: E_GRAPH_LINT references resolve: graph main returns 'q', which is not defined`,
    ],
    [
      'an unknown value in a body',
      'neg.default(%a)',
      'neg.default(%r)',
      `g.swg:10:27: E_GRAPH_LINT references resolve at n: uses 'r', which is not defined`,
    ],
    [
      'another type in a body',
      '(%a): f32[4, 2]',
      '(%a): f32[2, 4]',
      'g.swg:10:32: E_TYPE n: the file says f32[2, 4], but aten.neg.default gives f32[4, 2]',
    ],
    [
      'two inputs of one role name',
      'parameter "w"',
      'input "x"',
      `g.swg:4:6: E_GRAPH_LINT roles at w: is called 'x', as x is already`,
    ],
  ])('%s', (_, from, to, message) => {
    expect(TEXT).toContain(from);
    expect(told(TEXT.replace(from, to))).toBe(message);
  });

  test.each<[what: string, from: string, to: string, message: string]>([
    [
      'an unknown value behind a body',
      '(%mm): f32[4, 2] ; forward\n  out',
      '(%v): f32[4, 2] ; forward\n  out',
      `g.swg:11:26: E_GRAPH_LINT references resolve at r: uses 'v', which is not defined`,
    ],
    [
      'an output of nothing behind a body',
      'out %r',
      'out %q',
      `g.swg:12:7: E_GRAPH_LINT references resolve: graph main returns 'q', which is not defined`,
    ],
  ])('%s', (_, from, to, message) => {
    const lines = TEXT.split('\n');
    const [call, body, rest] = [lines.slice(5, 7), lines.slice(7, 12), lines.slice(12)];
    const moved = [...lines.slice(0, 5), ...body, ...call, ...rest].join('\n');
    expect(parseGraph(moved).nodes).toHaveLength(4);
    expect(moved).toContain(from);
    expect(told(moved.replace(from, to))).toBe(message);
  });
});
