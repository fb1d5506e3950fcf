/**
 * Steps of Adam and AdamW over lists of tensors. The importer takes the lists apart, so that each
 * parameter has a call and a placement of its own: a parameter, its gradient and its moments are
 * cut the same way, the step count is whole. Results are those of the functional operator, one
 * after the other: parameters, gradients, both moments, largest second moments.
 */

import { flat, fromFlat, type NDArray } from '../../../ndarray/array.ts';
import { type Kernel, type KernelCall, optional, tensors } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../../record/record.ts';
import { R, rule, S } from '../../record/rule.ts';
import { cuttable, sameShape } from '../../rules/dims.ts';

const LISTS = ['self', 'grads', 'exp_avgs', 'exp_avg_sqs', 'max_exp_avg_sqs'] as const;

/** The lists that a step writes, each with its members. */
function written(
  ctx: OpContext,
): readonly (readonly { readonly meta: TensorMeta; readonly index: number }[])[] {
  const lists = LISTS.map((name) =>
    ctx.list(name).flatMap((member) => (member === null ? [] : [member])),
  );
  const [params, ...others] = lists;
  others.forEach((list, k) => {
    const name = LISTS[k + 1];
    if (name === 'max_exp_avg_sqs' && list.length === 0 && !ctx.bool('amsgrad')) return;
    if (list.length !== params.length)
      ctx.fail(
        `'${name}' has ${list.length} tensors for ${params.length} parameters; the lists ` +
          'must be as long as each other',
      );
    list.forEach(({ meta }, i) => {
      if (!sameShape(meta.shape, params[i].meta.shape))
        ctx.fail(
          `'${name}' ${i} has shape [${meta.shape.join(', ')}], its parameter ` +
            `[${params[i].meta.shape.join(', ')}]`,
        );
    });
  });
  if (ctx.list('state_steps').length !== params.length)
    ctx.fail("'state_steps' must have a count for each parameter");
  return lists;
}

interface Step {
  readonly lr: number;
  readonly decoupled: boolean;
}

/** One parameter after one step; all of the same size. */
function stepped(
  call: KernelCall,
  { lr, decoupled }: Step,
  parts: readonly Float64Array[],
  step: number,
): Float64Array[] {
  const { ctx } = call;
  const [beta1, beta2, decay, eps] = ['beta1', 'beta2', 'weight_decay', 'eps'].map((name) =>
    ctx.number(name),
  );
  const [correction1, correction2] = [1 - beta1 ** step, 1 - beta2 ** step];
  const unscale = optional(call, 'grad_scale')?.item() ?? 1;
  const sign = ctx.bool('maximize') ? -1 : 1;
  const [p, g, m, v, top] = parts.map((part) => part.slice());
  p.forEach((_, i) => {
    g[i] /= unscale;
    let gradient = sign * g[i];
    if (decoupled) p[i] -= lr * decay * p[i];
    else gradient += decay * p[i];
    m[i] += (1 - beta1) * (gradient - m[i]);
    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    let second = v[i];
    if (ctx.bool('amsgrad')) second = top[i] = Math.max(top[i], v[i]);
    p[i] -= ((lr / correction1) * m[i]) / (Math.sqrt(second) / Math.sqrt(correction2) + eps);
  });
  return [p, g, m, v, ...(parts.length > 4 ? [top] : [])];
}

const adamKernel =
  (decoupled: boolean): Kernel =>
  (call) => {
    const { ctx } = call;
    const lists = LISTS.map((name) => tensors(call, name).flatMap((x) => (x === null ? [] : [x])));
    // A gradient that is not finite leaves everything as it was.
    if (optional(call, 'found_inf')?.item() === 1) return lists.flat();
    const steps = tensors(call, 'state_steps');
    const lr = optional(call, 'lr')?.item() ?? ctx.number('lr');
    const results: NDArray[][] = lists.map(() => []);
    lists[0].forEach((_, i) => {
      const own = lists.flatMap((list) => (list.length > 0 ? [list[i]] : []));
      const after = stepped(call, { lr, decoupled }, own.map(flat), steps[i]?.item() ?? 1);
      after.forEach((data, k) => results[k].push(fromFlat(own[k].shape, data, own[k].dtype)));
    });
    return results.flat();
  };

const TAIL =
  'float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, ' +
  'Tensor? grad_scale=None, Tensor? found_inf=None';

const adam = (name: string, overload: string): OperatorRecord =>
  defineOp(`aten._fused_${name}.${overload}`, {
    schema:
      `${LISTS.map((list) => `Tensor[] ${list}`).join(', ')}, Tensor[] state_steps, *, ` +
      `${overload === 'default' ? 'float' : 'Tensor'} lr, ${TAIL}`,
    cls: 'other',
    results: 'tuple',
    infer: (ctx) => written(ctx).flatMap((list) => list.map(({ meta }) => meta)),
    shard: (ctx) => {
      const lists = written(ctx);
      if (lists[0].length !== 1) return [];
      const cut = new Set(lists.flatMap((list) => list.map((member) => member.index)));
      return cuttable(lists[0][0].meta.shape).map((d) =>
        rule(
          ctx.inputs.map((_, i) => (cut.has(i) ? S(d) : R)),
          ctx.outputs.map(() => S(d)),
        ),
      );
    },
    flops: (ctx) => ({
      matrix: 0,
      vector: written(ctx)[0].reduce((sum, { meta }) => sum + 16 * elements(meta.shape), 0),
    }),
    kernel: adamKernel(name === 'adamw'),
  });

export const fusedOps: readonly OperatorRecord[] = ['adam', 'adamw'].flatMap((name) => [
  adam(name, 'default'),
  adam(name, 'tensor_lr'),
]);

const NUMBERS = 'beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6';

export const fusedSamples: readonly string[] = ['_fused_adam', '_fused_adamw'].flatMap((name) => [
  `${name}([x[5]], [x[5]], [x[5]], [pos[5]], [], [large[]], lr=0.1, ${NUMBERS}, ` +
    'amsgrad=False, maximize=False)',
  `${name}.tensor_lr([x[6]], [x[6]], [x[6]], [pos[6]], [pos[6]], [large[]], lr=pos[], ` +
    `${NUMBERS}, amsgrad=True, maximize=True)`,
]);
