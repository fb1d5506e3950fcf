import tseslint from 'typescript-eslint';

import importSort from 'eslint-plugin-simple-import-sort';
import { docSentence } from './scripts/lint/doc-sentence.mjs';
import { fileHead } from './scripts/lint/file-head.mjs';

const PRIVATE = {
  selector: 'PrivateIdentifier',
  message: 'write `private name`, as everywhere here',
};

/** Idioms of `src` that have a name. */
const FREE_NAME = {
  selector:
    'ForStatement > ExpressionStatement > AssignmentExpression > TemplateLiteral' +
    " > TemplateElement[value.raw='_']",
  message: '`NameSet`, `FreeNames` or `freeKey` of src/graph/names.ts find a free name',
};
const SIZE_PRODUCT = {
  selector:
    "CallExpression[callee.property.name='reduce'] > ArrowFunctionExpression" +
    " > BinaryExpression.body[operator='*'][left.type='Identifier'][right.type='Identifier']",
  message: 'a product of sizes is `elements(shape)`, `meshSize(dims)` or `product(sizes)`',
};

export default tseslint.config(
  {
    ignores: ['dist/**', 'dist.*/**', 'coverage/**', 'site/dist/**', 'node_modules/**', '**/*.cjs'],
  },
  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    plugins: { 'import-sort': importSort },
    rules: {
      'import-sort/imports': 'error',
      // One style of private members in the whole project: `private`, which parameter properties need.
      'no-restricted-syntax': ['error', PRIVATE],
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/no-unnecessary-condition': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/no-unused-vars': [
        'error',
        { ignoreRestSiblings: true, argsIgnorePattern: '^_' },
      ],
      eqeqeq: ['error', 'always'],
      'no-eval': 'error',
      'no-console': 'error',
      'prefer-const': 'error',
      'no-duplicate-imports': 'error',
    },
  },
  {
    files: ['**/*.mjs'],
    rules: { eqeqeq: ['error', 'always'], 'no-eval': 'error', 'prefer-const': 'error' },
  },
  {
    // The script of a report, which a browser runs as it is.
    files: ['data/report/*.js'],
    languageOptions: {
      sourceType: 'script',
      globals: { document: 'readonly', matchMedia: 'readonly', addEventListener: 'readonly' },
    },
    rules: {
      eqeqeq: ['error', 'always'],
      'no-eval': 'error',
      'no-undef': 'error',
      'no-unused-vars': 'error',
      'prefer-const': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    plugins: { house: { rules: { 'file-head': fileHead, 'doc-sentence': docSentence } } },
    rules: {
      'house/file-head': ['error', { words: 5 }],
      'house/doc-sentence': 'error',
      // The formatter breaks no strings, templates or comments.
      'max-len': ['error', { code: 100, ignoreRegExpLiterals: true }],
      'max-lines-per-function': ['error', { max: 60 }],
      'no-restricted-syntax': ['error', PRIVATE, FREE_NAME, SIZE_PRODUCT],
    },
  },
  {
    // They import nothing that knows shapes.
    files: ['src/{solver,contest}/**/*.ts'],
    rules: { 'no-restricted-syntax': ['error', PRIVATE, FREE_NAME] },
  },
  {
    // What a function needs is one record where it is more than five things. Steps of the state
    // space of redistributions are no objects: they are made for every edge.
    files: ['src/{cost,fidelity,plan,recipes,simulate,sweep}/**/*.ts'],
    ignores: ['src/cost/redistribution/{slots,states}.ts'],
    rules: { 'max-params': ['error', { max: 5 }] },
  },
  { files: ['bench/**', 'examples/**', 'scripts/**'], rules: { 'no-console': 'off' } },
);
