import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { LOCAL_MAP } from '../../src/graph/local-map.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import { checkTypes } from '../../src/local-spmd/check-types.ts';
import { scan } from '../../src/trace/control/loops.ts';
import { pvary } from '../../src/trace/spmd/jax-names.ts';
import { localMap, type LocalMapOptions } from '../../src/trace/spmd/local-map.ts';
import { allReduce, contract, convert, outPartial } from '../../src/trace/spmd/verbs.ts';
import { einsum } from '../../src/trace/tensor/einsum.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

function refusedBy(run: () => unknown): { message: string; hint: string } {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError)
      return { message: error.message, hint: error.details.hint ?? '' };
    throw error;
  }
  return { message: 'accepted', hint: '' };
}

const COLUMN: LocalMapOptions = {
  inSpecs: ['P(None,None,None)', 'P(None,"tp")'],
  outSpecs: 'P(None,None,"tp")',
};
const SBI = input([4, 2, 8], 'f32');
const IO = input([8, 16], 'f32');

function column(options: Partial<LocalMapOptions>, cast = true, mesh = 'tp=2') {
  return trace(
    (x, w) =>
      localMap((x: Tensor, w: Tensor) => contract('sbi,io->sbo', cast ? pvary(x, 'tp') : x, w), {
        ...COLUMN,
        ...options,
      })(x, w),
    [SBI, IO],
    { mesh },
  );
}

describe('regions of per-device code', () => {
  test('types of a column-parallel linear print as in JAX', () => {
    const { texts } = checkTypes(column({}));
    const found = [...texts]
      .filter(([name]) => name.includes('/'))
      .map(([name, text]) => [name.split('/')[1], text]);
    expect(found[0][1]).toBe('f32[4,2,8]');
    expect(found[1][1]).toBe('f32[8,8]{V:tp}');
    expect(found.find(([name]) => name === 'reinterpret')?.[1]).toBe('f32[4,2,8]{V:tp}');
    expect(found.at(-1)?.[1]).toBe('f32[4,2,8]{V:tp}');
  });

  test('the region is one node with a body, and the whole result joins', () => {
    const graph = column({});
    const node = graph.nodes.find(({ target }) => target === LOCAL_MAP);
    expect(node?.kwargs).toMatchObject({
      axes: ['tp=2'],
      in_specs: [['I'], ['S(1)']],
      out_specs: [['S(2)']],
    });
    expect(node?.type).toMatchObject({ items: [{ shape: [4, 2, 16] }] });
    expect(printGraph(graph)).toContain('local_map');
  });

  test('a missing cast is an error that names both types, the cast and the line', () => {
    const { message, hint } = refusedBy(() => column({ autoCast: false }, false));
    expect(message).toContain('f32[4,2,8]');
    expect(message).toContain('f32[8,8]{V:tp}');
    expect(message).toContain('local-map.test.ts:');
    expect(hint).toMatch(/^insert convert\(\w+, "tp", I→R\)$/);
  });

  test('with casts inserted the cast is a node', () => {
    expect(printGraph(column({}, false))).toContain('spmd_types.reinterpret.default');
  });

  test('an out spec that claims replication of what varies is refused', () => {
    const { message, hint } = refusedBy(() => column({ outSpecs: 'P(None)' }));
    expect(message).toContain('replication over tp is required');
    expect(message).toContain('the value may vary over {tp}');
    expect(hint).toContain('all_gather');
  });

  test('a carry keeps its type on every trip', () => {
    const swapped = (cast: boolean) =>
      trace(
        (x, y) =>
          localMap(
            (x: Tensor, y: Tensor) =>
              scan(
                ([a, b]: readonly [Tensor, Tensor]) => [[b, a] as const, a] as const,
                [x, cast ? pvary(y, 'tp') : y] as const,
                [],
                { length: 3 },
              )[0][0],
            { inSpecs: ['P("tp")', 'P(None)'], outSpecs: 'P("tp")' },
          )(x, y),
        [input([8], 'f32'), input([4], 'f32')],
        { mesh: 'tp=2' },
      );
    const { message, hint } = refusedBy(() => swapped(false));
    expect(message).toContain('carry');
    expect(hint).toContain('V both times');
    expect(refusedBy(() => swapped(true)).message).toBe('accepted');
  });

  test('what Megatron forgets is a type error', () => {
    const mlp = (f: boolean, g: 'reinterpret' | 'none' | 'twice' | 'whole', out: 'I' | 'R' = 'I') =>
      trace(
        (x, w1, w2) =>
          localMap(
            (x: Tensor, w1: Tensor, w2: Tensor) => {
              const h = einsum(
                'bi,io->bo',
                f ? convert(x, 'tp', { src: 'I', dst: 'R' }) : x,
                w1,
              ).relu();
              const y = einsum('bo,oi->bi', h, w2);
              if (g === 'none') return y;
              const p = outPartial(y, 'tp');
              if (g === 'reinterpret') return p.relu();
              const r = allReduce(p, 'tp', { dst: out });
              return g === 'twice' ? allReduce(r, 'tp', { dst: 'I' }) : r;
            },
            {
              inSpecs: ['P(None)', 'P(None,"tp")', 'P("tp")'],
              outSpecs: { tp: 'I' },
              autoCast: false,
            },
          )(x, w1, w2),
        [input([4, 8], 'f32'), input([8, 16], 'f32'), input([16, 8], 'f32')],
        { mesh: 'tp=2' },
      );
    expect(refusedBy(() => mlp(true, 'whole')).message).toBe('accepted');
    const f = refusedBy(() => mlp(false, 'whole'));
    expect(f.message).toContain('I with V');
    expect(f.hint).toContain('"tp", I→R)');
    const nonlinear = refusedBy(() => mlp(true, 'reinterpret'));
    expect(nonlinear.message).toContain('nonlinear(P)');
    expect(nonlinear.hint).toContain('all_reduce');
    expect(refusedBy(() => mlp(true, 'none')).message).toContain(
      'its out spec says I on tp, it is V',
    );
    expect(refusedBy(() => mlp(true, 'twice')).message).toContain('src must be P, got I');
    expect(refusedBy(() => mlp(true, 'whole', 'R')).message).toContain('says I on tp, it is R');
  });

  test('a replicated regulariser added to a P loss must become addends first', () => {
    const loss = (cast: boolean) =>
      trace(
        (x, w) =>
          localMap(
            (x: Tensor, w: Tensor) => {
              const r = convert(w, 'dp', { src: 'I', dst: 'R' });
              const data = outPartial(x.mul(r).sum(), 'dp');
              const reg = r.mul(r).sum();
              const total = data.add(cast ? convert(reg, 'dp', { src: 'R', dst: 'P' }) : reg);
              return allReduce(total, 'dp', { dst: 'I' });
            },
            { inSpecs: ['P("dp")', 'P(None)'], outSpecs: { dp: 'I' } },
          )(x, w),
        [input([4, 8], 'f32'), input([8], 'f32')],
        { mesh: 'dp=2' },
      );
    const { message, hint } = refusedBy(() => loss(false));
    expect(message).toContain('P with R');
    expect(hint).toContain('R→P');
    expect(refusedBy(() => loss(true)).message).toBe('accepted');
  });
});
