import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { loadModel } from '../../src/cli/input/load.ts';
import { LOCAL_MAP } from '../../src/graph/local-map.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { plannable } from '../../src/passes/plannable/plannable.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { constantsAsInputs, reduced, refuseUnevaluated } from '../../src/simulate/reduced.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

/**
 * Every graph of the fixtures under a plan drawn at random, reduced and run with numbers: all of
 * them in `test:full`, a sample of them here.
 */

const ROOT = fileURLToPath(new URL('../fixtures/', import.meta.url));
/**
 * One text of each graph: PyTorch's joint and exported graphs, their halves, StableHLO, jaxpr,
 * ONNX.
 */
const GRAPHS =
  /^(torch|joint|jax|onnx)\/.*(joint|joint_inductor|export|forward|backward|joint\.readable|export\.readable|stablehlo|jaxpr|shardy|gspmd)\.(txt|mlir)\.gz$|^onnx\/.*\.onnx\.gz$/;
/** Graphs of 12 and 32 layers: the same as those of 2, for minutes. */
const DEEP = /12l|32l|lm32/;

function files(folder = ''): string[] {
  return readdirSync(`${ROOT}${folder}`, { withFileTypes: true })
    .flatMap((entry) =>
      entry.isDirectory() ? files(`${folder}${entry.name}/`) : [`${folder}${entry.name}`],
    )
    .sort();
}

const all = files().filter((file) => GRAPHS.test(file) && !DEEP.test(file));
/**
 * Each of these was refused once, or called wrong: a padded label, an empty slice, a class that is
 * a literal, a constant, a backward pass whose statistics of norms are inputs.
 */
const sample = [
  'joint/convnet/backward.txt.gz',
  'jax/ctl-scan-rnn-grad/jaxpr.txt.gz',
  'jax/ctl-cond/stablehlo.mlir.gz',
  'onnx/llama-tiny.onnx.gz',
  'jax/shard-map-mlp/shardy.mlir.gz',
];

describe('graphs of the fixtures with numbers', () => {
  test('there are as many as there were', () => {
    expect(all.length).toBeGreaterThan(80);
    expect(sample.filter((file) => !all.includes(file))).toEqual([]);
  });

  test.each(FULL ? all : sample)(
    '%s',
    async (file) => {
      const { graph: given, table } = await loadModel(`${ROOT}${file}`, { role: [], tie: [] });
      const graph = constantsAsInputs(plannable(given, table));
      refuseUnevaluated(graph, table);
      // A region of per-device code is for its own mesh.
      const own = graph.nodes.some(({ target }) => target === LOCAL_MAP) ? graph.mesh : undefined;
      const mesh = own ?? 'a=2,b=2';
      const small = reduced(graph, table, { meshSizes: parseMesh(mesh).sizes, seed: 1 });
      const prepared = prepare(small.graph, request(mesh), table);
      const found = verify(small.graph, randomPlan(prepared, 1), { table, seed: 1 });
      expect(found.mismatches).toEqual([]);
      expect(found.collectives).toEqual(found.promised);
      expect(found.nodesCompared).toBeGreaterThan(1);
    },
    600_000,
  );
});
