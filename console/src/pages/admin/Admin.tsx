// The administration. Pages that the role may not read are shown, but cannot be opened.

import { useQuery } from '@tanstack/react-query';
import { Link, Outlet } from '@tanstack/react-router';

import { sessionQuery } from '../../api/session';
import { ADMIN_PAGES, mayRead } from '../../app/adminPages';
import { Button } from '../../ui/Button';
import { words } from '../../words';
import styles from './Admin.module.css';

export function Admin() {
  const { data: session } = useQuery(sessionQuery);
  return (
    <div className={styles.admin}>
      <nav aria-label={words.admin.title} className={styles.nav}>
        {ADMIN_PAGES.map(({ to, name, role }) =>
          session !== undefined && mayRead(session.role, role) ? (
            <Link key={to} to={to} className={styles.link}>
              {name}
            </Link>
          ) : (
            <Button key={to} onPress={() => undefined} disabledReason={words.roles.needs(role)}>
              {name}
            </Button>
          ),
        )}
      </nav>
      <div className={styles.page}>
        <Outlet />
      </div>
    </div>
  );
}
