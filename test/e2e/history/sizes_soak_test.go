//go:build linux && soak

package history

// restores are the cases of TestHistoryHubRestored.
var restores = []aRestore{
	{"revisions go back", 0, false},
	{"revisions go back, processes restarted", 0, true},
	{"revisions are bumped", restoreBump, false},
	{"revisions are bumped, processes restarted", restoreBump, true},
}

// busyApplications are those of TestHistoryManyStatuses.
const busyApplications = 500
