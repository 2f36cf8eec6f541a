// Pages for what cannot be shown.

import { Link } from '@tanstack/react-router';

import { Page } from '../ui/Page';
import { Problem } from '../ui/Problem';
import { words } from '../words';

export function NotFound() {
  return (
    <main>
      <Page title={words.errors.notFound}>
        <p>{words.errors.notFoundDetail}</p>
        <Link to="/">{words.nav.fleet}</Link>
      </Page>
    </main>
  );
}

/** Loading the page again also helps if the broker was upgraded, and files of the former version are gone. */
export function Crashed({ error }: { error: unknown }) {
  return (
    <main>
      <Page title={words.errors.crashed}>
        <Problem error={error} onRetry={() => globalThis.location.reload()} />
      </Page>
    </main>
  );
}

/** The project of the address does not exist, or is not one of the session. */
export function NoProject({ name }: { name: string }) {
  return (
    <Page title={words.errors.noProject}>
      <p>{words.errors.noProjectDetail(name)}</p>
      <Link to="." search={((before: object) => ({ ...before, project: undefined })) as never}>
        {words.errors.withoutProject}
      </Link>
    </Page>
  );
}
