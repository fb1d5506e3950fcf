/** The entry points of the package: their names, and where they are listed. */

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import ts from 'typescript';
import { expect, test } from 'vitest';

import { entryFiles } from '../../scripts/entries.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const read = (file: string): string => readFileSync(`${root}/${file}`, 'utf8');
const files = entryFiles();

const isExported = (node: ts.Node): boolean =>
  ts.canHaveModifiers(node) &&
  ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) === true;

/**
 * Names that a module exports by `export { ... } from` or `export * as ... from`, and functions and
 * classes of its own. `export * from` would name nothing.
 */
function exportedNames(file: string): string[] {
  const { statements } = ts.createSourceFile(file, read(file), ts.ScriptTarget.ES2023);
  return statements.flatMap((statement) => {
    if (ts.isFunctionDeclaration(statement) || ts.isClassDeclaration(statement))
      return isExported(statement) ? [statement.name!.text] : [];
    if (!ts.isExportDeclaration(statement)) {
      if (isExported(statement)) throw new Error(`${file} exports a statement without a name`);
      return [];
    }
    if (statement.exportClause === undefined)
      throw new Error(`${file} holds a statement that names nothing to export`);
    return ts.isNamespaceExport(statement.exportClause)
      ? [statement.exportClause.name.text]
      : statement.exportClause.elements.map(({ name }) => name.text);
  });
}

test('the main entry has the functions of README.md and at most 60 names', () => {
  const table = read('README.md').split('| function ')[1].split('\n\n')[0];
  const functions = [...table.matchAll(/^\| (`[^|]*`) *\|/gm)].flatMap(([, cell]) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name),
  );
  const names = exportedNames('src/index.ts');
  expect(functions).toHaveLength(10);
  expect(names).toEqual(expect.arrayContaining(functions));
  expect(names.length).toBeLessThanOrEqual(60);
});

test('no name is exported twice', () => {
  const names = [...files.values()].flatMap(exportedNames);
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  expect(names.length).toBeGreaterThan(500);
});

test('every file of src/entries is an entry of the package, except that of the page', () => {
  const folder = readdirSync(`${root}/src/entries`).map((file) => `src/entries/${file}`);
  expect([...files.values()].sort()).toEqual(
    [...folder.filter((file) => file !== 'src/entries/page.ts'), 'src/index.ts'].sort(),
  );
});

test('every entry is in the reference and in README.md, and says what it is for', () => {
  const { entryPoints } = JSON.parse(read('typedoc.json')) as { readonly entryPoints: string[] };
  expect(entryPoints.toSorted()).toEqual([...files.values()].sort());
  for (const [entry, file] of files) {
    expect(read('README.md'), entry).toContain(entry === 'shardwright' ? entry : `\`${entry}\``);
    expect(read(file).startsWith(`/**\n * The entry \`${entry}\``), file).toBe(true);
    expect(read(file), file).toContain(` * @module ${entry}\n`);
  }
});
