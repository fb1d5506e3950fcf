/**
 * The pages of the documents in the order of their site, by group. A test holds the list to the
 * files.
 *
 * @type {Readonly<Record<string, readonly string[]>>}
 */
export const GROUPS = {
  Guides: [
    'docs/tutorial.md',
    'docs/how-to.md',
    'docs/planning.md',
    'docs/inference.md',
    'docs/reports.md',
    'docs/models.md',
    'docs/memory.md',
    'docs/capture.md',
    'docs/write-a-rule.md',
    'docs/from-jax.md',
    'docs/export-targets.md',
    'docs/site.md',
  ],
  Concepts: [
    'docs/how-it-works.md',
    'docs/placements.md',
    'docs/costs.md',
    'docs/overlap.md',
    'docs/local-spmd.md',
    'docs/certificates.md',
    'docs/glossary.md',
    'docs/beside-others.md',
  ],
  'Tests and measurements': [
    'docs/fidelity.md',
    'docs/families.md',
    'docs/engines.md',
    'docs/coverage.md',
    'bench/results.md',
    'bench/validate.md',
    'bench/memory.md',
    'bench/iopddl.md',
  ],
};
