//go:build linux && !soak

package history

// restores are the cases of TestHistoryHubRestored. Each takes more than a minute; the
// other two pairs of what can differ are in the build tagged soak.
var restores = []aRestore{
	{"revisions go back", 0, false},
	{"revisions are bumped, processes restarted", restoreBump, true},
}

// busyApplications are those of TestHistoryManyStatuses.
const busyApplications = 100
