// Everything below belongs to one project: another project in the address replaces it all.

import { Outlet, useSearch } from '@tanstack/react-router';
import { Fragment } from 'react';

export function Root() {
  const { project } = useSearch({ from: '__root__' });
  return (
    <Fragment key={project ?? ''}>
      <Outlet />
    </Fragment>
  );
}
