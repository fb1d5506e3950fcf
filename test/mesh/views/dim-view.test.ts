import { describe, expect, test } from 'vitest';

import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import type { Placement } from '../../../src/mesh/placements/placement.ts';
import { Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { StridedShard } from '../../../src/mesh/placements/shards/strided.ts';
import { toMeshView } from '../../../src/mesh/sharding/mesh-view.ts';
import { parsePlacement, parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { heldRows, Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { permutations } from '../../../src/mesh/sharding/space.ts';
import { parseSpec, printSpec } from '../../../src/mesh/sharding/spec-text.ts';
import { fromDimView, toDimView } from '../../../src/mesh/views/dim-view.ts';
import {
  gradientState,
  stateName,
  STATES,
  statesOf,
  stateTable,
  VOCABULARIES,
} from '../../../src/mesh/views/four-states.ts';
import { parsePartitionSpec, PartitionSpec } from '../../../src/mesh/views/partition-spec.ts';
import { parseShardedType } from '../../../src/mesh/views/sharded-type.ts';

const two = parseMesh('dp=2,tp=2');

function spec(text: string): PartitionSpec {
  return parsePartitionSpec(text);
}
function dimText(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): string {
  const view = toDimView(sharding, mesh, shape);
  return 'refused' in view ? `refused: ${view.refused}` : view.spec.text;
}
function meshText(sharding: Sharding, mesh: DeviceMesh, shape?: readonly number[]): string {
  const view = toMeshView(sharding, mesh, shape);
  return 'refused' in view
    ? `refused: ${view.refused}`
    : view.placements.map((p) => p.text).join('');
}

/**
 * The truth, from the definition of a PartitionSpec: the dim is cut into as many equal blocks as
 * its mesh dims have devices together, and a device's block is the mixed-radix number of its
 * coordinates, major first.
 */
function owned(axes: readonly string[], mesh: DeviceMesh, size: number): number[][] {
  return mesh.devices.map((_, rank) => {
    let block = 0;
    let blocks = 1;
    for (const axis of axes) {
      const m = mesh.names.indexOf(axis);
      let coordinate = rank;
      for (let inner = mesh.rank - 1; inner > m; inner--)
        coordinate = Math.floor(coordinate / mesh.sizes[inner]);
      block = block * mesh.sizes[m] + (coordinate % mesh.sizes[m]);
      blocks *= mesh.sizes[m];
    }
    const rows = size / blocks;
    return Array.from({ length: rows }, (__, i) => block * rows + i);
  });
}

describe('dim view and mesh view', () => {
  test.each([
    ['P(("dp", "tp"))', 'S(0)S(0)', [8], 'S(0)S(0)'],
    ['P(("tp", "dp"))', 'S(0)[1]S(0)[0]', [8], '_S(0, 2)S(0)'],
    ['P("tp", None)', 'RS(0)', [4, 4], 'RS(0)'],
    ['P(None, "dp")', 'S(1)R', [4, 4], 'S(1)R'],
    ['P("tp", "dp")', 'S(1)S(0)', [4, 4], 'S(1)S(0)'],
    ['P(None, unreduced={"tp"})', 'RP(sum)', [4], 'RP(sum)'],
    ['P("dp", unreduced={"tp": "max"})', 'S(0)P(max)', [4], 'S(0)P(max)'],
    ['P()', 'RR', [], 'RR'],
  ])('%s is %s', (dims, ordered, shape, view) => {
    const { sharding } = fromDimView(spec(dims), two);
    expect(sharding.text).toBe(ordered);
    expect(dimText(sharding, two, shape)).toBe(dims);
    expect(meshText(sharding, two, shape)).toBe(view);
    expect(dimText(parseSharding(view, two), two, shape)).toBe(dims);
    // A strided list that was never decoded is decoded on the way.
    const raw = toMeshView(sharding, two);
    if (!('refused' in raw)) expect(dimText(new Sharding(raw.placements), two, shape)).toBe(dims);
  });

  test('the order in a PartitionSpec decides which rank holds which rows', () => {
    const held = (text: string): number[][] =>
      heldRows(fromDimView(spec(text), two).sharding, two, 0, 8);
    expect(held('P(("dp", "tp"))')).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
    expect(held('P(("tp", "dp"))')).toEqual([
      [0, 1],
      [4, 5],
      [2, 3],
      [6, 7],
    ]);
  });

  const three = parseMesh('a=2,b=3,c=4');
  const FACTORS: [string, number[]][] = [
    ['abc', [1, 1, 1]],
    ['acb', [1, 4, 1]],
    ['bac', [3, 1, 1]],
    ['bca', [12, 1, 1]],
    ['cab', [4, 4, 1]],
    ['cba', [12, 4, 1]],
  ];
  test.each(FACTORS)('order %s has factors %j', (order, factors) => {
    const dims = new PartitionSpec([[...order]]);
    const texts = factors.map((f) => (f === 1 ? 'S(0)' : `_S(0, ${f})`)).join('');
    expect(meshText(fromDimView(dims, three).sharding, three)).toBe(texts);
    expect(dimText(parseSharding(texts, three), three, [24])).toBe(dims.text);
  });

  test('a stride that is not an order has no dim view, and says so', () => {
    expect(dimText(parseSharding('_S(0, 2)S(0)S(0)', three), three, [48])).toBe(
      "refused: mesh dim 'a' is _S(0, 2): its stride is not an order of mesh dims (as after a flatten), which a PartitionSpec cannot say",
    );
  });

  test.each([
    ['Ragged(0, [1, 3], 2)R', [8]],
    ['Interleaved(0, [4, 2])R', [6]],
    ['RMaskP(sum, [16, 8], 0)', [4]],
    ['_NormP(2)R', [4]],
  ])('the dim view is closed: %s has none', (text, shape) => {
    expect(dimText(parseSharding(text, two), two, shape)).toMatch(
      /^refused: .*plain cuts and plain reductions only$/,
    );
  });

  test('uneven: the order is kept, the strided form is refused both ways', () => {
    const mesh = parseMesh('dp=3,tp=2');
    const { sharding } = fromDimView(spec('P(("tp", "dp"))'), mesh);
    expect(heldRows(sharding, mesh, 0, 7)).toEqual([[0, 1], [4], [2, 3], [5], [], [6]]);
    expect(meshText(sharding, mesh, [7])).toMatch(
      /^refused: S\(0\)\[1\]S\(0\)\[0\] cuts \[7\] unevenly/,
    );
    const strided = new Sharding([new StridedShard(0, 2), Shard.of(0)]);
    expect(heldRows(strided, mesh, 0, 7).slice(4)).toEqual([[6], []]);
    expect(dimText(strided, mesh, [7])).toMatch(/^refused: _S\(0, 2\)S\(0\) cuts \[7\] unevenly/);
    expect(dimText(strided, mesh, [12])).toBe('P(("tp", "dp"))');
  });

  test('reduced mesh dims survive the round trip beside the mesh view', () => {
    const { sharding, reduced } = fromDimView(spec('P("tp", reduced={"dp"})'), two);
    expect([sharding.text, reduced]).toEqual(['RS(0)', ['dp']]);
    const back = toDimView(sharding, two, [4], reduced);
    expect('spec' in back && back.spec.text).toBe('P("tp", reduced={"dp"})');
    expect(() => toDimView(sharding, two, [4], ['tp'])).toThrow(
      "mesh dim 'tp' is S(0), so its values are not reduced",
    );
  });

  test('what does not fit the mesh or the tensor', () => {
    expect(() => fromDimView(spec('P("tpp")'), two)).toThrow("has no dim 'tpp'");
    expect(() => toDimView(parseSharding('S(1)R', two), two, [4])).toThrow(
      'cuts dim 1 of a 1-D tensor',
    );
    expect(() => spec('P("dp", None)').forRank(1).forRank(0)).toThrow(
      'has 1 dims, the tensor has 0',
    );
  });
});

describe('every order, element for element', () => {
  const check = (mesh: DeviceMesh, axes: readonly string[]): void => {
    const where = `${axes.join()} on ${mesh.text}`;
    const product = axes.reduce((n, a) => n * mesh.sizes[mesh.names.indexOf(a)], 1);
    const size = 2 * product;
    const dims = new PartitionSpec([axes]);
    const { sharding } = fromDimView(dims, mesh);
    const view = toMeshView(sharding, mesh, [size]);
    if ('refused' in view) throw new Error(view.refused);
    const strided = new Sharding(view.placements);
    // Both routes agree with the definition, and come back.
    const truth = owned(axes, mesh, size);
    expect(heldRows(sharding, mesh, 0, size), where).toEqual(truth);
    expect(heldRows(strided, mesh, 0, size), where).toEqual(truth);
    expect(dimText(strided, mesh, [size]), where).toBe(dims.text);
    expect(dimText(sharding, mesh, [size]), where).toBe(dims.text);
    const again = toDimView(strided, mesh, [size]);
    if ('refused' in again) throw new Error(again.refused);
    expect(meshText(fromDimView(again.spec, mesh).sharding, mesh), where).toBe(strided.text);
  };

  test('all subsets of three mesh dims, sizes from 2, 3, 4', () => {
    let orders = 0;
    for (const a of [2, 3, 4])
      for (const b of [2, 3, 4])
        for (const c of [2, 3, 4]) {
          const mesh = parseMesh(`a=${a},b=${b},c=${c}`);
          for (let mask = 1; mask < 8; mask++)
            for (const order of permutations([0, 1, 2].filter((m) => (mask & (1 << m)) !== 0))) {
              check(
                mesh,
                order.map((m) => mesh.names[m]),
              );
              orders++;
            }
        }
    expect(orders).toBe(27 * 15);
  });

  test('every order of four mesh dims', () => {
    for (const text of [
      'a=2,b=2,c=2,d=2',
      'a=2,b=3,c=4,d=2',
      'a=3,b=2,c=2,d=3',
      'a=4,b=2,c=3,d=2',
    ]) {
      const mesh = parseMesh(text);
      for (const order of permutations([0, 1, 2, 3]))
        check(
          mesh,
          order.map((m) => mesh.names[m]),
        );
    }
  });

  test('several tensor dims at once', () => {
    const mesh = parseMesh('a=2,b=3,c=4,d=2');
    for (const text of [
      'P(("c", "a"), ("d", "b"))',
      'P("d", ("b", "a"), "c")',
      'P(("d", "c"), None, ("b", "a"))',
    ]) {
      const dims = spec(text);
      const shape = dims.dims.map(() => 48);
      const { sharding } = fromDimView(dims, mesh);
      const view = toMeshView(sharding, mesh, shape);
      if ('refused' in view) throw new Error(view.refused);
      dims.dims.forEach((axes, d) => {
        expect(heldRows(sharding, mesh, d, 48)).toEqual(owned(axes, mesh, 48));
        expect(heldRows(new Sharding(view.placements), mesh, d, 48)).toEqual(owned(axes, mesh, 48));
      });
      expect(dimText(new Sharding(view.placements), mesh, shape)).toBe(text);
    }
  });
});

describe('texts of the dim view', () => {
  test.each([
    'P()',
    'P(None)',
    'P("tp", None)',
    'P(("tp", "dp"), None)',
    'P(unreduced={"cp"})',
    'P(("tp", "dp"), unreduced={"cp", "x"}, reduced={"y"})',
    'P(None, unreduced={"cp": "sum", "x": "max"})',
    'P(None, reduced={"a", "b"})',
  ])('%s', (text) => {
    expect(spec(text).text).toBe(text);
    expect(spec(spec(text).text).equals(spec(text))).toBe(true);
  });

  test.each([
    ["PartitionSpec('tp', None,)", 'P("tp", None)'],
    ['P(("tp",), ())', 'P("tp", None)'],
    ["P( ( 'tp' , 'dp' ) )", 'P(("tp", "dp"))'],
    ["P('x', unreduced={'y',})", 'P("x", unreduced={"y"})'],
  ])('%s is %s', (text, canonical) => {
    expect(spec(text).text).toBe(canonical);
  });

  test.each([
    ['P(tp)', /a name of a mesh dim in quotes, or None at column 3/],
    ['P("tp"', /expected ',' at column 7/],
    ['P("tp") x', /nothing more after the spec at column 9/],
    ['P("tp", ("dp", "tp"))', /'tp' is listed twice/],
    ['P("tp", unreduced={"tp"})', /'tp' is listed twice/],
    ['P(unreduced={"x": "mean"})', /one of sum, avg/],
    ['P(unreduced={"x", "x"})', /each mesh dim once/],
    ['P(reduced={"x"}, "y")', /unreduced=, reduced= or the end/],
    ['Q("x")', /expected 'P' at column 1/],
  ])('refuses %s', (text, message) => {
    expect(() => spec(text)).toThrow(message);
  });

  test.each([
    'f32[8@(tp,dp),16]{U:cp}',
    'f32[]',
    'bf16[4,2,8]{V:tp}',
    'f32[8,16@tp]',
    'f32[4,8@dp,16]{U:tp}',
    'f32[4,8@dp,16]{R:tp}',
    'float32[8@x]{V:(a,b), R:r, U:u, U(max):(m,n)}',
  ])('type %s', (text) => {
    expect(parseShardedType(text).text).toBe(text);
  });

  test('a type holds its dim view', () => {
    const type = parseShardedType('f32[8@(tp,dp), 16]{ U:cp }');
    expect(type.spec.text).toBe('P(("tp", "dp"), None, unreduced={"cp"})');
    expect([type.dtype, type.shape]).toEqual(['f32', [8, 16]]);
  });

  test.each([
    ['f32[8@]', /a name of a mesh dim at column 7/],
    ['f32[8@()]', /a name of a mesh dim before this place/],
    ['f32[8,16', /expected ',' at column 9/],
    ['f32[8]{W:x}', /a mark V:, R: or U: at column 8/],
    ['f32[8@x]{V:x}', /'x' has two states/],
    ['f32[8]{U:x, U(max):x}', /'x' has two states/],
    ['f32[8@x,4@x]', /'x' is listed twice/],
    ['[8]', /expected a dtype/],
    ['f32[-1]', /expected a size/],
  ])('refuses type %s', (text, message) => {
    expect(() => parseShardedType(text)).toThrow(message);
  });

  test.each([
    'Spec(f32[8, 8](S(0)S(1)))',
    'Spec(bf16[](RR))',
    'Spec(f32[16](_S(0, 3)Ragged(0, [1, 3], 2)))',
  ])('%s', (text) => {
    expect(printSpec(parseSpec(text, two))).toBe(text);
  });

  test('specs take dims from the end, and refuse what is not a spec', () => {
    expect(printSpec(parseSpec('Spec(f32[8, 8](Shard(-1), Replicate()))', two))).toBe(
      'Spec(f32[8, 8](S(1)R))',
    );
    expect(() => parseSpec('Spec(f32[8, 8](S(2)R))', two)).toThrow('2-D tensor');
    expect(() => parseSpec('Spec(f32[8, 8]S(2)R)', two)).toThrow("expected '('");
    expect(() => parseSpec('Spec(f32[8](S(0)R)', two)).toThrow('expected a sharding and');
  });

  test('printed meshes are read back', () => {
    for (const text of ['dp=2,tp=2', 'x=1', 'pp=2,dp_shard=4,cp.in=3']) {
      expect(parseMesh(text).text).toBe(text);
      expect(parseMesh(parseMesh(text).toString()).toString()).toBe(parseMesh(text).toString());
    }
    const permuted = new DeviceMesh(
      [
        { name: 'x', size: 2 },
        { name: 'y', size: 2 },
      ],
      [5, 1, 7, 0],
    );
    expect(parseMesh(permuted.toString()).devices).toEqual([5, 1, 7, 0]);
    expect(parseMesh(permuted.toString()).toString()).toBe(permuted.toString());
  });
});

describe('the four states', () => {
  const at = { axis: 'x', dim: 0, size: 8 };

  test('their names in every vocabulary (the table of the placements spec)', () => {
    const rows = STATES.map((s) => VOCABULARIES.map((v) => stateName(s, v, at) ?? '-'));
    expect(rows).toEqual([
      ['S(0)', 'Shard(0)', '8@x', '{V:x}', 'S(0) or V'],
      ['I', 'Replicate()', '', '', 'I'],
      ['R', '-', '{R:x}', '{R:x}', 'R'],
      ['P', 'Partial(sum)', '{U:x}', '{U:x}', 'P'],
    ]);
    expect(STATES.map(gradientState)).toEqual(['S', 'I', 'P', 'R']);
    // A gradient of a gradient is placed like the value.
    expect(STATES.map((s) => gradientState(gradientState(s)))).toEqual(STATES);
    expect(stateTable(at)).toBe(
      [
        'ours  dtensor       jax-explicit  jax-manual  spmd-types  data                            gradient',
        'S(0)  Shard(0)      8@x           {V:x}       S(0) or V   different slices                S(0)',
        'I     Replicate()   unmarked      unmarked    I           equal                           I',
        'R     -             {R:x}         {R:x}       R           equal                           P',
        'P     Partial(sum)  {U:x}         {U:x}       P           addends of a pending reduction  R',
      ].join('\n'),
    );
  });

  test('names that DTensor and JAX know are read back', () => {
    for (const state of STATES) {
      const name = stateName(state, 'dtensor', at);
      if (name === undefined) continue;
      const p: Placement = parsePlacement(name);
      expect(statesOf(p)).toContain(state);
      // A replicated value of DTensor is I or R, undecided.
      expect(statesOf(p).length).toBe(state === 'I' ? 2 : 1);
    }
    for (const state of ['R', 'P'] as const) {
      const type = parseShardedType(`f32[8]${stateName(state, 'jax-explicit', at)}`);
      expect([...type.spec.reduced, ...type.spec.unreduced.keys()]).toEqual(['x']);
    }
  });
});
