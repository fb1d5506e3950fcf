/**
 * The platform that this program runs on: Node's. In a page `browser.ts` has its place: in the
 * package by the condition `browser` of `imports` in package.json, in this repository's own page by
 * its build.
 */
export * from './node.ts';
