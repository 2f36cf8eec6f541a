// How long ago something happened; the exact time is its title.

import { age, dateTime, orDash } from '../lib/format';
import { useNow } from '../lib/now';
import { words } from '../words';

export function Age({ at }: { at: string | null | undefined }) {
  const now = useNow();
  if (at == null) return orDash(at);
  return (
    <time dateTime={at} title={dateTime(at)}>
      {words.ago(age(at, now))}
    </time>
  );
}

export function When({ at }: { at: string | null | undefined }) {
  return at == null ? orDash(at) : <time dateTime={at}>{dateTime(at)}</time>;
}
