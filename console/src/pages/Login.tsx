// Signing in with an API token. The response never says whether a token exists.

import { useQueryClient } from '@tanstack/react-query';
import { useRouter, useSearch } from '@tanstack/react-router';
import { useEffect, useState, type FormEvent } from 'react';

import { ApiError, asApiError } from '../api/problem';
import { announce, onAnnounced, sessionQuery, signIn } from '../api/session';
import { enter } from '../app/leave';
import { Command } from '../ui/Copy';
import { Page } from '../ui/Page';
import { Problem } from '../ui/Problem';
import { words } from '../words';
import styles from './Login.module.css';

const say = words.login;

export function Login() {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const { to } = useSearch({ from: '/login' });
  const router = useRouter();
  const queries = useQueryClient();

  useEffect(() => {
    return onAnnounced((change) => change === 'signed-in' && enter(router, to));
  }, [router, to]);

  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const token = (new FormData(event.currentTarget).get('token') as string).trim();
    setBusy(true);
    try {
      queries.setQueryData(sessionQuery.queryKey, await signIn(token));
      announce('signed-in');
      enter(router, to);
    } catch (thrown) {
      const problem = asApiError(thrown);
      setError(problem.isUnauthenticated ? refused(problem) : problem);
      setBusy(false);
    }
  };

  return (
    <main className={styles.main}>
      <Page title={say.title}>
        {!globalThis.isSecureContext && <p role="alert">{say.insecure}</p>}
        {to !== undefined && to !== '/' && error === undefined && <p>{say.deepLink}</p>}
        <form className={styles.form} onSubmit={(event) => void submit(event)}>
          <label className={styles.field}>
            <span>{say.token}</span>
            <input name="token" type="password" autoComplete="off" required spellCheck={false} />
          </label>
          <button type="submit" className={styles.submit} disabled={isBusy}>
            {say.submit}
          </button>
        </form>
        {error !== undefined && <Problem error={error} />}
        <p>{say.hint}</p>
        <Command line={say.command} />
      </Page>
    </main>
  );
}

function refused(problem: ApiError): ApiError {
  return new ApiError(401, say.refused, { next: say.refusedNext, request_id: problem.requestId });
}
