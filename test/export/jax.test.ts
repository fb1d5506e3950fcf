import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { ShardwrightError } from '../../src/errors.ts';
import { exportFiles } from '../../src/export/export.ts';
import { jaxTarget } from '../../src/export/jax/target.ts';
import { importGraph } from '../../src/import/import.ts';
import { plannedProgram } from '../../src/lower/lower.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { TABLE } from '../plan/support.ts';
import { distinctCollectives } from './distinct.ts';
import {
  askedCollectives,
  hashOf,
  JAX_RECORD,
  readJaxRecord,
  recordedSource,
} from './jax-record.ts';
import { randomSource } from './programs.ts';

const infer = { infer: inferCall.bind(undefined, TABLE) };

/** The programs that real JAX ran (`npm run test:engines`), exported again from the kept plans. */
const record = readJaxRecord(readFileSync(JAX_RECORD));

test('where JAX has no text for a call, the shardings are written all the same', () => {
  const graph = importGraph(
    `module { func.func public @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>)
        -> tensor<8x4xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
      %1 = stablehlo.compare LT, %0, %0, TOTALORDER
        : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xi1>
      %2 = stablehlo.select %1, %0, %x : tensor<8x4xi1>, tensor<8x4xf32>
      return %2 : tensor<8x4xf32>
    } }`,
    infer,
  );
  const source = randomSource(graph, 'd=2', 0);
  const { files, losses } = jaxTarget.write(source);
  expect(files.map(({ name }) => name)).toEqual(['shardings.json']);
  expect(losses).toMatchObject([
    { item: '_1', planned: expect.stringContaining('total order') as string },
  ]);
  const read = jaxTarget.readBack?.(files, source.mesh);
  for (const { name, outputs } of source.plan.nodes.slice(0, 2))
    expect(read?.nodes?.get(name)?.outputs).toEqual(outputs);
  let hint = '';
  try {
    exportFiles(source, 'jax');
  } catch (error) {
    hint = (error as ShardwrightError).details.hint ?? '';
  }
  expect(hint).toContain('--allow-lossy');
  expect(hint).not.toContain('torch');
});

describe('programs exported to JAX', () => {
  test.each(Object.keys(record.cases))('%s: the files that JAX ran', (name) => {
    const kept = record.cases[name];
    const source = recordedSource(kept);
    const { files, losses } = jaxTarget.write(source);
    expect(losses).toEqual([]);
    const hint = 'run SHARDWRIGHT_RECORD=1 npm run test:engines -- test/engines/jax-export.test.ts';
    expect(hashOf(files), hint).toBe(kept.files);
    expect(kept.answer.sharded).toBeLessThan(1e-7);
    expect(kept.answer.written).toEqual(askedCollectives(files));
    if (name.endsWith('the optimum'))
      expect(kept.answer.compiled).toEqual(distinctCollectives(source));
  });

  test.each(Object.keys(record.cases))(
    '%s: its collectives are those that the plan promises',
    (name) => {
      const source = recordedSource(record.cases[name]);
      const planned = plannedProgram(source.program, source.plan, TABLE);
      const promised = promisedCollectives(planned, source.plan, TABLE)
        .map(({ kind }) => kind)
        .sort();
      const file = jaxTarget.write(source).files.find((f) => f.name === 'collectives.json');
      const { collectives } = JSON.parse(file?.text ?? '') as { collectives: { kind: string }[] };
      expect(collectives.map(({ kind }) => kind).sort()).toEqual(promised);
    },
  );

  test.each(Object.keys(record.cases))(
    '%s: the placements read back are those of the plan',
    (name) => {
      const source = recordedSource(record.cases[name]);
      const mesh = parseMesh(source.plan.request.mesh);
      const read = jaxTarget.readBack?.(jaxTarget.write(source).files, mesh);
      for (const { name: parameter, placement, tiedTo } of source.plan.parameters)
        if (tiedTo === undefined)
          expect(read?.parameters?.get(parameter), parameter).toBe(placement);
    },
  );
});
