/**
 * Keeps compiled code between runs, where Node can (22.1 and later): half of the time to load a
 * command goes into compiling it. Node keeps it in its own folder, `node-compile-cache` of the
 * system's temporary folder or what NODE_COMPILE_CACHE names, and NODE_DISABLE_COMPILE_CACHE=1
 * turns it off. Each thread has to ask by itself. Plain JavaScript, as is the thread that asks.
 */
import module from 'node:module';

/** Does nothing on Node 20. */
export function keepCompiledCode() {
  if ('enableCompileCache' in module && typeof module.enableCompileCache === 'function')
    module.enableCompileCache();
}
