import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import { importGraph } from '../../../src/import/import.ts';
import { content, infer } from '../twins.ts';

/** `torch.linalg.cholesky(a)` and a solve, as torch 2.13 exports and prints them. */
const READABLE = `class GraphModule(torch.nn.Module):
    def forward(self, token: "f32[0]", a: "f32[6, 8, 8]", b: "f32[6, 8, 4]"):
        cholesky = torch.ops.aten.linalg_cholesky_ex.default(a)
        factor: "f32[6, 8, 8]" = cholesky[0]
        info: "i32[6]" = cholesky[1]
        effects = torch.ops.higher_order.with_effects(token, torch.ops.aten._linalg_check_errors.default, info, 'linalg.cholesky', is_matrix = False)
        token_1: "f32[0]" = effects[0]
        solve = torch.ops.aten._linalg_solve_ex.default(factor, b)
        x: "f32[6, 8, 4]" = solve[0]
        told: "i32[6]" = solve[3]
        effects_1 = torch.ops.higher_order.with_effects(token_1, torch.ops.aten._linalg_check_errors.default, told, 'torch.linalg.solve', is_matrix = False)
        token_2: "f32[0]" = effects_1[0]
        return (token_2, x)
`;

/** The same graph as `str(graph)` prints it, without quotes around words. */
const PRINTED = `graph():
    %token : [num_users=1] = placeholder[target=token]
    %a : [num_users=1] = placeholder[target=a]
    %b : [num_users=1] = placeholder[target=b]
    %cholesky : [num_users=2] = call_function[target=torch.ops.aten.linalg_cholesky_ex.default](args = (%a,), kwargs = {})
    %factor : [num_users=1] = call_function[target=operator.getitem](args = (%cholesky, 0), kwargs = {})
    %info : [num_users=1] = call_function[target=operator.getitem](args = (%cholesky, 1), kwargs = {})
    %effects : [num_users=1] = call_function[target=torch.ops.higher_order.with_effects](args = (%token, aten._linalg_check_errors.default, %info, linalg.cholesky), kwargs = {is_matrix: False})
    %token_1 : [num_users=1] = call_function[target=operator.getitem](args = (%effects, 0), kwargs = {})
    %solve : [num_users=2] = call_function[target=torch.ops.aten._linalg_solve_ex.default](args = (%factor, %b), kwargs = {})
    %x : [num_users=1] = call_function[target=operator.getitem](args = (%solve, 0), kwargs = {})
    %told : [num_users=1] = call_function[target=operator.getitem](args = (%solve, 3), kwargs = {})
    %effects_1 : [num_users=1] = call_function[target=torch.ops.higher_order.with_effects](args = (%token_1, aten._linalg_check_errors.default, %told, torch.linalg.solve), kwargs = {is_matrix: False})
    %token_2 : [num_users=1] = call_function[target=operator.getitem](args = (%effects_1, 0), kwargs = {})
    return (token_2, x)
`;

const inputs = { token: 'f32[0]', a: 'f32[6, 8, 8]', b: 'f32[6, 8, 4]' };

describe('with_effects', () => {
  test('is a call of its operator, and every token is the first', () => {
    const graph = importGraph(READABLE, { infer });
    expect(graph.nodes.filter((n) => n.kind === 'call').map((n) => n.target)).toEqual([
      'aten.linalg_cholesky_ex.default',
      'operator.getitem',
      'operator.getitem',
      'aten._linalg_check_errors.default',
      'aten._linalg_solve_ex.default',
      'operator.getitem',
      'operator.getitem',
      'aten._linalg_check_errors.default',
    ]);
    expect(graph.outputs.map((output) => output.value)).toEqual(['token', 'x']);
  });

  test('is read alike from print_readable and from str(graph)', () => {
    expect(content(importGraph(PRINTED, { infer, inputs }))).toEqual(
      content(importGraph(READABLE, { infer })),
    );
  });

  test('gives the result of an operator that returns one, and each of several', () => {
    const text = (reads: string): string => `class G(torch.nn.Module):
    def forward(self, token: "f32[0]", a: "f32[8, 8]"):
        effects = torch.ops.higher_order.with_effects(token, ${reads}
        next: "f32[0]" = effects[0]
        return (next, y)
`;
    const one = importGraph(
      text(`torch.ops.aten.sin.default, a)\n        y: "f32[8, 8]" = effects[1]`),
      { infer },
    );
    expect(one.outputs.map((output) => output.value)).toEqual(['token', 'effects']);
    const several = importGraph(
      text(
        `torch.ops.aten.topk.default, a, 2)\n        y: "f32[8, 2]" = effects[1]\n` +
          `        z: "i64[8, 2]" = effects[2]`,
      ),
      { infer },
    );
    expect(several.nodes.slice(-3).map((n) => [n.target, n.args.at(-1)])).toEqual([
      ['aten.topk.default', 2],
      ['operator.getitem', 0],
      ['operator.getitem', 1],
    ]);
  });
});

test('the hint for a factory of another dtype is to write the dtype in the call', () => {
  const text = `class G(torch.nn.Module):
    def forward(self, x: "bf16[8, 16]"):
        ones: "i32[8, 16]" = torch.ops.aten.ones.default([8, 16], device = device(type='cpu'), pin_memory = False)
        return (ones,)
`;
  let refusal: unknown;
  try {
    importGraph(text, { infer });
  } catch (error) {
    refusal = error;
  }
  expect(refusal).toBeInstanceOf(ShardwrightError);
  expect((refusal as ShardwrightError).details.hint).toContain('write the dtype in the call');
});
