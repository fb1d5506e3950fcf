import { testByPytest } from './support/pytest.ts';
import { TRAINING } from './support/training-tests.ts';

testByPytest('pytest of the Python package: models and scripts that train', TRAINING);
