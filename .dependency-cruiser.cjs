/**
 * The rows of the house: a room imports only from rows below its own.
 * Neighbours in one row do not meet, with two exceptions: `models` may use `trace`, and the rooms of row 9 stand alone.
 */
const rows = [
  ['graph', 'mesh', 'solver', 'ndarray'],
  ['ops'],
  ['local-spmd'],
  ['cost'],
  ['passes'],
  ['trace', 'import', 'models', 'strategy'],
  ['plan'],
  ['simulate'],
  ['zoo'],
  ['report', 'export'],
  ['cli'],
];
const forbidden = [
  { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
  {
    name: 'not-to-dev-dependency',
    comment: 'zod is linked into dist; typescript is a peer that only the readers of programs need',
    severity: 'error',
    from: { path: '^src' },
    to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], pathNot: '^node_modules/(zod|typescript)/' },
  },
  { name: 'not-to-test', severity: 'error', from: { path: '^src' }, to: { path: '^(test|bench|examples|scripts)' } },
  {
    name: 'solver-knows-no-tensors',
    severity: 'error',
    from: { path: '^src/solver' },
    to: { path: '^src/', pathNot: '^src/solver' },
  },
  {
    name: 'index-is-the-only-barrel',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/cli' },
    to: { path: '^src/index\\.ts$' },
  },
];
const mayMeet = { models: ['trace'] };
rows.forEach((rooms, row) => {
  for (const room of rooms) {
    const above = rows.slice(row + 1).flat();
    const neighbours = rooms.filter((r) => r !== room && !(mayMeet[room] ?? []).includes(r));
    forbidden.push({
      name: `row-${row + 1}-${room}`,
      comment: `src/${room} may import only from lower rows`,
      severity: 'error',
      from: { path: `^src/${room}/` },
      to: { path: `^src/(${[...above, ...neighbours].join('|')})/` },
    });
  }
});
module.exports = {
  forbidden,
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default'],
      mainFields: ['main', 'types'],
    },
  },
};
