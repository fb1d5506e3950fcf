import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { ExportSource } from '../../src/backend/target.ts';
import { gspmdText, shardyText } from '../../src/export/shardy/shardings.ts';
import { gspmdTarget, shardyTarget } from '../../src/export/shardy/target.ts';
import { importGraph } from '../../src/import/import.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../src/mesh/sharding/parse.ts';
import { plannedProgram } from '../../src/plan/record/planned.ts';
import { TABLE } from '../plan/support.ts';
import { JAX_RECORD, readJaxRecord, recordedSource } from './jax-record.ts';
import { SHARDY_RECORD, type ShardyAnswer } from './shardy-record.ts';

const record = readJaxRecord(readFileSync(JAX_RECORD));
const NAMES = Object.keys(record.cases).filter((name) => !name.startsWith('ctl-scan'));

describe('texts of shardings', () => {
  // The strings that JAX 0.10 prints for these specs on a mesh of a=2 and b=4.
  test.each([
    ['S(0)S(1)', '{devices=[2,4]<=[8]}', '<@mesh, [{"a"}, {"b"}]>'],
    ['S(1)S(0)', '{devices=[4,2]<=[2,4]T(1,0)}', '<@mesh, [{"b"}, {"a"}]>'],
    ['S(0)S(0)', '{devices=[8,1]<=[8]}', '<@mesh, [{"a", "b"}, {}]>'],
    ['RS(1)', '{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}', '<@mesh, [{}, {"b"}]>'],
    ['S(0)R', '{devices=[2,1,4]<=[8] last_tile_dim_replicate}', '<@mesh, [{"a"}, {}]>'],
    ['S(0)[1]S(0)[0]', '{devices=[8,1]<=[2,4]T(1,0)}', '<@mesh, [{"b", "a"}, {}]>'],
    ['RR', '{replicated}', '<@mesh, [{}, {}]>'],
  ])('%s', (placement, gspmd, shardy) => {
    const mesh = parseMesh('a=2,b=4');
    const sharding = parseSharding(placement, mesh);
    expect(gspmdText(sharding, mesh, [16, 16])).toEqual({ text: gspmd });
    expect(shardyText(sharding, mesh, [16, 16])).toEqual({ text: shardy });
  });
});

/**
 * Placements of the inputs as the importer reads them from the text; what is not stated is
 * replicated.
 */
function stated(source: ExportSource, text: string): string[] {
  const graph = importGraph(text);
  const given = new Map(graph.given?.map((g) => [g.value ?? '', g.sharding]));
  const whole = source.mesh.sizes.map(() => 'R').join('');
  return graph.nodes.flatMap((node) =>
    node.kind === 'placeholder' ? [given.get(node.name) ?? whole] : [],
  );
}

describe('StableHLO with shardings', () => {
  test.each(NAMES)('%s: the importer reads the planned placements from the Shardy text', (name) => {
    const source = recordedSource(record.cases[name]);
    const [{ text }] = shardyTarget.write(source).files;
    const planned = new Map(source.plan.nodes.map((node) => [node.name, node.outputs[0]]));
    const wanted = source.program.nodes.flatMap((n) =>
      n.kind === 'placeholder' ? [planned.get(n.name)] : [],
    );
    expect(stated(source, text)).toEqual(wanted);
  });

  test.each(NAMES)('%s: the GSPMD text reads as a program of the same size', (name) => {
    const source = recordedSource(record.cases[name]);
    const count = (text: string): number =>
      importGraph(text, { ignoreShardings: true }).nodes.filter((n) => n.kind === 'placeholder')
        .length;
    const texts = [gspmdTarget, shardyTarget].map((target) => target.write(source).files[0].text);
    expect(count(texts[0])).toBe(count(texts[1]));
  });

  test('the placements of the plan lie on the values of loops and branches, too', () => {
    for (const name of ['ctl-cond on a=2,b=2, drawn 0', 'ctl-while on a=2,b=2, drawn 0']) {
      const source = recordedSource(record.cases[name]);
      const planned = plannedProgram(source.program, source.plan, TABLE);
      const [{ text }] = shardyTarget.write(source).files;
      const bodies = Object.values(importGraph(text).subgraphs);
      const given = bodies.flatMap((body) => (body.given ?? []).map(({ sharding }) => sharding));
      // Numbers lie everywhere, and a pending sum has no text.
      const arrays = new Set(
        planned.listed.nodes.flatMap(({ name: node, type }) =>
          type.kind === 'tensor' && type.shape.length > 0 ? [node] : [],
        ),
      );
      const made = source.plan.nodes
        .filter(({ name: node }) => arrays.has(node) && planned.opened?.origins.has(node))
        .flatMap(({ outputs }) => outputs)
        .filter((spec) => !spec.includes('P'));
      expect(made.length, name).toBeGreaterThan(0);
      for (const spec of made) expect(given, name).toContain(spec);
    }
  });

  test('an input that the step replaces gives its memory to the new value', () => {
    const source = recordedSource(record.cases['lm2-scan on a=2,b=2, the optimum']);
    const replaced = source.program.outputs.filter(({ role }) => role !== 'output').length;
    const [{ text }] = shardyTarget.write(source).files;
    const places = [...text.matchAll(/tf\.aliasing_output = (\d+)/g)].map(([, k]) => Number(k));
    expect(new Set(places).size).toBe(replaced);
  });

  test('XLA kept the numbers of every recorded plan', () => {
    const { cases } = JSON.parse(readFileSync(SHARDY_RECORD, 'utf8')) as {
      cases: Record<string, ShardyAnswer>;
    };
    expect(Object.keys(cases).length).toBeGreaterThan(10);
    for (const [name, { worst }] of Object.entries(cases)) expect(worst, name).toBeLessThan(1e-9);
  });
});
