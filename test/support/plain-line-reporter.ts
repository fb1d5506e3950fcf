import type { Reporter, TestModule } from 'vitest/node';

/** Ends a test run with the one plain line that CI logs are searched for. */
export default class PlainLineReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      // A file that does not load has no tests to fail; it must still turn the line red.
      if (module.state() === 'failed' && module.errors().length > 0) count.failed++;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed') count.passed++;
        else if (state === 'failed') count.failed++;
        else count.skipped++;
      }
    }
    process.stdout.write(
      `${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped\n`,
    );
  }
}
