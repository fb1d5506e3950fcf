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
    name: 'entries-are-for-users',
    comment: 'the entry points of the package are its only barrels',
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/(cli/|index\\.ts$)' },
    to: { path: '^src/(index\\.ts$|entries/)' },
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

/**
 * The rooms inside: sub-rooms (folders, or files at the root of the room) in rows, bottom first. A sub-room imports only from
 * rows below its own; neighbours in one row do not meet.
 */
const inside = {
  solver: [
    ['types', 'store', 'clock'],
    ['check'],
    ['network', 'milp'],
    ['dual', 'eliminate', 'problem'],
    ['fold', 'reduce'],
    ['search'],
    ['solve'],
    ['anytime', 'preferences'],
  ],
  'solver/anytime': [['choice'], ['model'], ['bound'], ['lns'], ['run'], ['finish'], ['conclude'], ['solve-choice']],
  plan: [
    ['request'],
    ['model'],
    ['restrict', 'tie-break'],
    ['prepare'],
    ['record'],
    ['lower', 'memory'],
    ['shard'],
    ['memory-frontier', 'questions'],
    ['check-plan'],
  ],
  passes: [
    ['call-context', 'dead-code', 'sizes', 'training'],
    ['control', 'fusion'],
    ['plannable'],
    ['checkpoint'],
    ['autodiff'],
  ],
  trace: [
    ['errors'],
    ['sizes'],
    ['record'],
    ['tensor'],
    ['control', 'source'],
    ['custom', 'lint', 'nn', 'spmd', 'trace'],
    ['capture'],
  ],
  cli: [['output', 'runtime'], ['input'], ['commands'], ['program'], ['main']],
  mesh: [['layout', 'placements'], ['devices'], ['sharding'], ['views'], ['einshard', 'local-types']],
  cost: [
    ['collective-model', 'memory'],
    ['hardware', 'jumps', 'redistribution'],
    ['kernels'],
    ['collectives', 'compute'],
    ['presets', 'training'],
    ['validation'],
  ],
  zoo: [['recipes'], ['compare'], ['audit', 'sweep'], ['layout', 'pipeline']],
  'zoo/sweep': [
    ['model'],
    ['rank'],
    ['threads', 'step'],
    ['sweep', 'resume', 'plan-names'],
    ['conclude', 'optima', 'what-if'],
    ['compare-model'],
  ],
  report: [
    ['formats', 'markup', 'analysis', 'draw'],
    ['figures', 'model'],
    ['text'],
    ['sections'],
    ['html'],
    ['written'],
  ],
  ops: [
    ['record'],
    ['flops', 'program-flops', 'list-operators', 'kernels', 'rules'],
    ['registry', 'stablehlo', 'einsum', 'spmd'],
    ['vjp'],
    ['aten'],
    ['builtin', 'samples'],
  ],
  models: [['read-config'], ['architecture', 'layers'], ['families'], ['registry', 'vocabulary'], ['build']],
};
for (const [room, floors] of Object.entries(inside))
  floors.forEach((names, floor) => {
    const above = floors.slice(floor + 1).flat();
    for (const name of names) {
      const others = [...above, ...names.filter((other) => other !== name)];
      if (others.length === 0) continue;
      forbidden.push({
        name: `${room}/${name}`,
        comment: `src/${room}/${name} may import only from lower sub-rooms of src/${room}`,
        severity: 'error',
        from: { path: `^src/${room}/${name}(/|\\.ts$)` },
        to: { path: `^src/${room}/(${others.join('|')})(/|\\.ts$)` },
      });
    }
  });
// The judge of the solver: it shares no code with the engines that it checks.
forbidden.push({
  name: 'checker-shares-no-code',
  severity: 'error',
  from: { path: '^src/solver/check/' },
  to: { path: '^src/', pathNot: '^src/solver/(check/|types\\.ts$)' },
});
// Folders that are entered through one file only.
const doors = {
  'solver/anytime': 'solve-choice',
  'ops/stablehlo': 'operators',
  'cost/validation': 'validate',
  'import/jaxpr': 'foreign',
  'import/hlo': 'collectives',
};
for (const [folder, door] of Object.entries(doors))
  forbidden.push({
    name: `door-of-${folder}`,
    severity: 'error',
    from: { path: '^src/', pathNot: `^src/${folder}/` },
    to: { path: `^src/${folder}/`, pathNot: `^src/${folder}/${door}\\.ts$` },
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
