// Input that a request follows: the request is sent when the person stops typing.

import { useEffect, useState } from 'react';

const TYPING_MS = 400;

/** Returns the last value that has not changed for a while. Values are compared by their content. */
export function useSettled<T>(value: T): T {
  const content = JSON.stringify(value);
  const [settled, setSettled] = useState(content);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(content), TYPING_MS);
    return () => clearTimeout(timer);
  }, [content]);
  return JSON.parse(settled) as T;
}
