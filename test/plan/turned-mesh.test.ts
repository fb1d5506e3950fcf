import { expect, it } from 'vitest';

import { prepare } from '../../src/plan/prepare/prepare.ts';
import { load, request, TABLE } from './support.ts';

const GRAPH = load('torch/mlp/joint.expanded');

/** What a plan on the mesh says of the same devices in another order of mesh dims. */
const note = (mesh: string): string | undefined =>
  prepare(GRAPH, request(mesh), TABLE).notes.find((line) =>
    line.startsWith('Nothing is cheaper among'),
  );

it('a plan says among what nothing is cheaper where mesh dims of different sizes share links, and names the turned mesh', () => {
  expect(note('tp=2,dp=4')).toContain('--mesh dp=4,tp=2 is another question');
  expect(note('dp=4,tp=2')).toContain('--mesh tp=2,dp=4 is another question');
  expect(note('pod=4,dp=2,tp=4')).toContain('--mesh pod=4,tp=4,dp=2 is another question');
});

it.each([
  ['equal sizes: the turned mesh is the same one', 'dp=2,tp=2'],
  [
    'dims that do not share links: which one is inside the host is a question of the cluster',
    'dp=4,tp=8',
  ],
  ['one dim', 'dp=8'],
  ['a dim of one device', 'dp=8,tp=1'],
])('nothing is said for %s', (_, mesh) => {
  expect(note(mesh)).toBeUndefined();
});
