/** Returns a function that runs at once, and then again at the end of each period in which it was called. */
export function throttle(run: () => void, ms: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isCalled = false;
  const call = () => {
    isCalled = timer !== undefined;
    if (isCalled) return;
    run();
    timer = setTimeout(() => {
      timer = undefined;
      if (isCalled) call();
    }, ms);
  };
  return call;
}
