import { gzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { importGraph, type ImportOptions } from '../../src/import/import.ts';
import { binaryText } from '../support/binary-text.ts';
import { FULL } from '../support/full.ts';
import { text } from './fixtures.ts';

const HEAD =
  'class GraphModule(torch.nn.Module):\n    def forward(self, x: "f32[4, 16]", w: "f32[16, 16]"):\n';
const TAIL = '        return (mm,)\n';
const MM = '        mm: "f32[4, 16]" = torch.ops.aten.mm.default(x, w)\n';

function refusal(input: string | Uint8Array, options: ImportOptions = {}): ShardwrightError {
  try {
    importGraph(input, options);
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  throw new Error('the import was not refused');
}

/** Code, line:column and message of a refusal. */
function told(input: string, options: ImportOptions = {}): string {
  const { code, message, details } = refusal(input, options);
  expect(details.hint ?? '').not.toBe('');
  return `${code} ${details.position?.line}:${details.position?.column} ${message}`;
}

describe('bad FX text is refused with place and remedy', () => {
  test.each<[what: string, body: string, message: string]>([
    ['an undefined name', MM.replace('(x, w)', '(x, q)') + TAIL, `E_REF 3:57 'q' is not defined`],
    [
      'a complex number',
      MM.replace('(x, w)', '(x, 2.5j)') + TAIL,
      'E_UNSUPPORTED 3:57 the complex number 2.5j',
    ],
    [
      'a value used before its definition',
      '        a: "f32[4]" = torch.ops.aten.neg.default(b)\n        b: "f32[4]" = torch.ops.aten.neg.default(a)\n' +
        TAIL,
      `E_REF 3:50 'b' is used 1 line above its definition`,
    ],
    [
      'a value that needs itself',
      '        mm: "f32[4]" = torch.ops.aten.neg.default(mm)\n' + TAIL,
      `E_REF 3:51 'mm' is used in its own definition`,
    ],
    [
      'a cycle of two values',
      '        a: "f32[4]" = torch.ops.aten.neg.default(b)\n        c: "f32[4]" = torch.ops.aten.neg.default(x)\n        b: "f32[4]" = torch.ops.aten.neg.default(a)\n' +
        TAIL,
      `E_REF 3:50 'b' is used 2 lines above its definition`,
    ],
    [
      'a name that only another function defines',
      '        a: "f32[4]" = torch.ops.aten.neg.default(b)\n        return (a,)\n    class g(torch.nn.Module):\n        def forward(self, y: "f32[4]"):\n            b: "f32[4]" = torch.ops.aten.neg.default(y)\n            return (b,)\n',
      `E_REF 3:50 'b' is not defined`,
    ],
    [
      'a call that is cut behind its operator',
      '        mm: "f32[4, 16]" = torch.ops.aten.m',
      `E_SYNTAX 3:44 expected '(' behind the operator torch.ops.aten.m, found the end of the text`,
    ],
    ['a name defined twice', MM + MM + TAIL, `E_DUP 4:9 'mm' is defined twice`],
    [
      'a name of an input defined again',
      MM.replace('mm:', 'x:') + TAIL,
      `E_DUP 3:9 'x' is defined twice`,
    ],
    ['an unknown dtype', MM.replace('f32[', 'f33[') + TAIL, `E_TYPE 3:14 'f33' is not a dtype`],
    [
      'a negative size',
      MM.replace('[4, 16]', '[4, -16]') + TAIL,
      `E_TYPE 3:21 '-16' is not a size`,
    ],
    [
      'a type without sizes',
      MM.replace('f32[4, 16]', 'f32') + TAIL,
      `E_SYNTAX 3:14 expected a type such as f32[4, 16], found 'f32'`,
    ],
    [
      'a type cut short',
      MM.replace('f32[4, 16]', 'f32[4, 16') + TAIL,
      `E_SYNTAX 3:21 '16' is not a size`,
    ],
    [
      'a wrong stride count',
      MM.replace('f32[4, 16]', 'f32[4, 16][16]') + TAIL,
      `E_TYPE 3:24 2 sizes but 1 strides in 'f32[4, 16][16]'`,
    ],
    [
      'a bad device',
      MM.replace('f32[4, 16]', 'f32[4, 16]cpu(') + TAIL,
      `E_SYNTAX 3:27 expected a device, found 'cpu('`,
    ],
    [
      'two operators in a statement',
      MM.replace('(x, w)', '(x, w.t())') + TAIL,
      'E_UNSUPPORTED 3:57 more than one operator in a statement',
    ],
    [
      'a module call',
      '        y = self.fc1(x)\n' + TAIL,
      'E_UNSUPPORTED 3:13 the module self.fc1 is called',
    ],
    ['a change in place', '        x[0] = w\n' + TAIL, `E_UNSUPPORTED 3:9 'x' is changed in place`],
    [
      'an in-place operator',
      '        x += w\n' + TAIL,
      `E_UNSUPPORTED 3:9 'x' is changed in place`,
    ],
    [
      'a dictionary argument',
      MM.replace('(x, w)', '({1: x})') + TAIL,
      'E_UNSUPPORTED 3:54 a dictionary is passed as an argument',
    ],
    [
      'an unknown torch constant',
      MM.replace('(x, w)', '(x, torch.qint8)') + TAIL,
      `E_UNSUPPORTED 3:57 'torch.qint8' is neither a dtype nor a memory format that graphs hold`,
    ],
    [
      'an open string',
      MM.replace('"f32[4, 16]"', '"f32[4, 16]') + TAIL,
      'E_SYNTAX 3:13 the string has no closing quote',
    ],
    [
      'a bracket too many',
      MM.replace('(x, w)', '(x, w))') + TAIL,
      `E_SYNTAX 3:59 ')' closes no bracket`,
    ],
    [
      'a missing comma',
      MM.replace('(x, w)', '(x w)') + TAIL,
      `E_SYNTAX 3:56 expected ',' or ')', found 'w'`,
    ],
    [
      'a keyword twice',
      MM.replace('(x, w)', '(x, a = 1, a = 2)') + TAIL,
      `E_SYNTAX 3:64 argument 'a' is given twice`,
    ],
    [
      'a positional argument behind a keyword',
      MM.replace('(x, w)', '(a = x, w)') + TAIL,
      'E_SYNTAX 3:61 a positional argument follows a keyword',
    ],
    [
      'a foreign character',
      MM.replace('(x, w)', '(x, ?)') + TAIL,
      `E_SYNTAX 3:57 expected a statement, found '?'`,
    ],
    ['no return', MM, 'E_SYNTAX 4:1 expected a return statement, found the end of the text'],
    [
      'a statement behind the return',
      MM + TAIL + MM,
      `E_SYNTAX 5:9 expected the end of 'forward' after its return, found 'mm'`,
    ],
    ['an undefined return', TAIL, `E_REF 3:17 'mm' is not defined`],
    [
      'a nested return',
      MM + '        return ((mm,),)\n',
      'E_UNSUPPORTED 4:17 a nested structure is returned',
    ],
    [
      'an attribute without class or type',
      '        g = self.g\n        c = torch.ops.higher_order.cond(x, g, g, (w,))\n        return (c,)\n',
      `E_REF 3:9 'self.g' is neither a nested class nor typed`,
    ],
    [
      'a tuple read past its end',
      '        g = self.g\n        c = torch.ops.higher_order.cond(x, g, g, (w,))\n        r: "f32[16, 16]" = c[1]\n        return (r,)\n\n    class g(torch.nn.Module):\n        def forward(self, a: "f32[16, 16]"):\n            return (a,)\n',
      'E_TYPE 5:9 r reads result 1 of c, which has 1',
    ],
  ])('%s', (_what, body, message) => {
    expect(told(HEAD + body)).toBe(message);
  });

  test('the message shows file, line, column, the wrong line and near names', () => {
    const error = refusal(HEAD + MM.replace('(x, w)', '(x, mn)').replace('mm:', 'nm:') + TAIL, {
      file: 'a.fx.txt',
    });
    expect(error.headline).toBe(`a.fx.txt:3:57: E_REF 'mn' is not defined`);
    expect(error.details.excerpt).toContain('aten.mm.default(x, mn)');
    expect(refusal(HEAD + MM.replace('(x, w)', '({1: x})') + TAIL).details.hint).toContain(
      'pass its members',
    );
    expect(refusal(HEAD + MM.replace('(x, w)', '(x, W)') + TAIL).details.hint).toBe(
      `did you mean 'w' or 'x'?`,
    );
  });

  test('an input without a type', () => {
    const untyped = HEAD.replace('x: "f32[4, 16]"', 'x');
    expect(told(untyped + MM + TAIL)).toBe(`E_TYPE 2:23 input 'x' has no type`);
  });

  test('a body that takes other inputs than the call gives', () => {
    const wrong = text('hop-cond/export.readable.txt.gz').replace(
      'false_graph_0, (x, p_a_bias,',
      'false_graph_0, (p_a_bias,',
    );
    const error = refusal(wrong);
    expect(error.headline).toContain(
      'E_GRAPH_LINT bodies at cond: @true_graph_0 takes 4 inputs, the call gives 3',
    );
    expect(error.details.position?.line).toBe(10);
  });

  test('a gradient unlike its parameter, and a gradient in a foreign slot', () => {
    const joint = text('mlp-loss/joint.expanded.txt.gz');
    const swapped = joint.replace(
      "            view_1,  # GradAOTOutput(grad_of=ParamAOTInput(target='m.fc1.bias'))",
      "            view,  # GradAOTOutput(grad_of=ParamAOTInput(target='m.fc1.bias'))",
    );
    expect(refusal(swapped).message).toContain(
      `grad m.fc1.bias has type f32[1024], its placeholder primals_2 has f32[4096]`,
    );
    const foreign = joint.replace(
      "t_8,  # GradAOTOutput(grad_of=ParamAOTInput(target='m.fc1.weight'))",
      "t_8,  # GradAOTOutput(grad_of=ParamAOTInput(target='m.fc2.weight'))",
    );
    expect(told(foreign)).toBe(
      `E_REF 46:13 the gradient of 'm.fc2.weight' is in the slot of 'm.fc1.weight'`,
    );
  });
});

describe('limits', () => {
  test('100,000 nested brackets of FX text are refused with the limit', () => {
    const error = refusal(
      HEAD + `        y = torch.ops.aten.view.default(x, ${'['.repeat(100_000)}\n`,
    );
    expect(error.headline).toBe('3:299: E_LIMIT brackets nest deeper than 256');
  });
  test('a name of 1 MiB is refused with the limit', () => {
    const error = refusal(
      `${HEAD}        ${'a'.repeat(2 ** 20)} = torch.ops.aten.neg.default(x)\n`,
    );
    expect(error.headline).toBe(
      '3:9: E_LIMIT a name of 1048576 characters; at most 4096 are allowed',
    );
  });
  test('a tensor of 1,000 dims is refused with the limit', () => {
    const error = refusal(
      HEAD + MM.replace('f32[4, 16]', `f32[${Array<number>(1000).fill(1).join(', ')}]`) + TAIL,
    );
    expect(error.headline).toBe('3:17: E_LIMIT more than 64 dims');
  });
  test('300 nested classes are refused with the limit', () => {
    let nested = HEAD + MM + TAIL;
    for (let depth = 1; depth <= 300; depth++) {
      const indent = ' '.repeat(4 * depth);
      nested += `${indent}class g(torch.nn.Module):\n${indent}    def forward(self, x: "f32[]"):\n${indent}        return (x,)\n`;
    }
    expect(refusal(nested).headline).toContain('E_LIMIT classes nest deeper than 256');
  });
  test('a gzip that unpacks 1,000 times, and a text above the limit', () => {
    const bomb = refusal(gzipSync(Buffer.alloc(2 ** 24, 32)));
    expect([bomb.code, bomb.message]).toEqual([
      'E_LIMIT',
      expect.stringContaining('200 times as many'),
    ]);
    expect(refusal(gzipSync(HEAD + MM + TAIL), { maxBytes: 100 }).headline).toBe(
      'E_LIMIT the text unpacks to more than 100 bytes',
    );
  });
  test('a damaged gzip, a cut gzip and bytes that are not a UTF-8', () => {
    const good = gzipSync(HEAD + MM + TAIL);
    const damaged = Uint8Array.from(good);
    damaged[good.length - 6] ^= 255;
    expect(refusal(damaged).code).toBe('E_ARCHIVE');
    expect(refusal(good.subarray(0, good.length - 9)).code).toBe('E_ARCHIVE');
    const bytes = Buffer.from(HEAD + MM + TAIL);
    bytes[100] = 0xff;
    expect(refusal(bytes).headline).toBe('E_ENCODING byte 100 (0xff) is not UTF-8');
    const cut = Buffer.concat([Buffer.from(HEAD + MM + TAIL), Buffer.from([0xe2, 0x82])]);
    expect(refusal(cut).code).toBe('E_ENCODING');
  });
});

describe('hostile names', () => {
  test('prototype keys are ordinary names', () => {
    const names = ['__proto__', 'constructor', 'hasOwnProperty', 'toString'];
    const lines = names.map(
      (name) => `        ${name}: "f32[4, 16]" = torch.ops.aten.add.Tensor(x, x, ${name} = 1)\n`,
    );
    const graph = importGraph(`${HEAD + lines.join('')}        return (${names.join(', ')})\n`, {
      infer: false,
    });
    expect(graph.nodes.slice(2).map((n) => n.name)).toEqual(names);
    for (const [i, name] of names.entries()) {
      const { kwargs } = graph.nodes[i + 2];
      expect(Object.keys(kwargs)).toEqual([name]);
      expect(Object.getPrototypeOf(kwargs)).toBe(Object.prototype);
    }
    expect(Object.hasOwn(Object.prototype, 'kind')).toBe(false);
    expect(
      told(
        `${HEAD}        y: "f32[4, 16]" = torch.ops.aten.neg.default(__proto__)\n        return (y,)\n`,
      ),
    ).toBe(`E_REF 3:54 '__proto__' is not defined`);
  });
  test('classes may be called like prototype keys', () => {
    const graph = importGraph(
      `${HEAD}        c = self.__proto__\n        d = self.constructor\n        y = torch.ops.higher_order.cond(x, c, d, (w,))\n        return (w,)\n` +
        ['__proto__', 'constructor']
          .map(
            (name) =>
              `    class ${name}(torch.nn.Module):\n        def forward(self, a: "f32[16, 16]"):\n            return (a,)\n`,
          )
          .join(''),
    );
    expect(Object.keys(graph.subgraphs)).toEqual(['__proto__', 'constructor']);
    expect(graph.nodes.at(-1)?.args[1]).toEqual({ kind: 'graph', name: '__proto__' });
  });
});

describe('damaged texts', () => {
  const small = text('mlp/joint.expanded.txt.gz');
  const nested = text('hop-cond/export.readable.txt.gz');

  test('every prefix of a text is refused with its place, or is complete', () => {
    for (const whole of [small, nested]) {
      const complete = whole.trimEnd().length;
      // Every 29th prefix, every one with SHARDWRIGHT_FULL.
      for (let end = 0; end < complete; end += FULL ? 1 : 29) {
        const error = refusal(whole.slice(0, end), { format: 'fx' });
        expect([error.code, error.details.position?.line ?? 0], `prefix of ${end}`).toEqual([
          expect.stringMatching(/^E_(SYNTAX|REF|TYPE|UNSUPPORTED)$/),
          expect.any(Number),
        ]);
        expect(error.details.position?.column, `prefix of ${end}`).toBeGreaterThan(0);
      }
      expect(importGraph(whole.slice(0, complete)).nodes.length).toBeGreaterThan(5);
    }
  });

  test('any small damage gives a linted graph or a coded error', () => {
    const damage = fc.tuple(
      fc.nat(small.length - 1),
      fc.constantFrom('delete', 'swap', 'put'),
      binaryText({ minLength: 1, maxLength: 3 }),
    );
    fc.assert(
      fc.property(fc.array(damage, { minLength: 1, maxLength: 4 }), (steps) => {
        let broken = small;
        for (const [at, how, put] of steps) {
          const [head, tail] = [broken.slice(0, at), broken.slice(at)];
          if (how === 'delete') broken = head + tail.slice(1);
          else if (how === 'swap')
            broken = head + tail.slice(1, 2) + tail.slice(0, 1) + tail.slice(2);
          else broken = head + put + tail;
        }
        try {
          lintGraph(importGraph(broken, { format: 'fx' }));
        } catch (error) {
          expect(error).toBeInstanceOf(ShardwrightError);
          expect((error as ShardwrightError).code).not.toBe('E_INTERNAL');
        }
      }),
      { numRuns: FULL ? 1500 : 100, seed: 20 },
    );
  });
});
