import { readdirSync } from 'node:fs';

import { testByPytest } from './support/pytest.ts';
import { TRAINING } from './support/training-tests.ts';

/** All tests of the Python package but those of `python-training.test.ts`. */
const all = readdirSync(new URL('../../python/tests', import.meta.url));

testByPytest(
  'pytest of the Python package: capture, plans, ranks, launchers, pipelines and JAX',
  all.filter((file) => /^test_.*\.py$/.test(file) && !TRAINING.includes(file)),
);
