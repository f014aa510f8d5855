package release

import (
	"fmt"
	"time"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/release/common"
)

// Act is what has to be done to a release.
type Act int

// The acts, of which the zero value does nothing.
const (
	// Keep leaves everything as it is.
	Keep Act = iota
	// Install makes the release.
	Install
	// Upgrade makes a new revision of it.
	Upgrade
	// Mend records an operation that was ended in the middle as failed, and upgrades.
	Mend
	// Refuse does nothing, since something else is there or under way.
	Refuse
)

// String returns the act as a word.
func (a Act) String() string {
	switch a {
	case Install:
		return "install"
	case Upgrade:
		return "upgrade"
	case Mend:
		return "mend"
	case Refuse:
		return "refuse"
	}
	return "keep"
}

// Facts are what [Decide] decides from.
type Facts struct {
	// State is what there is, and Chart and Version are of the chart that is wanted.
	State          State
	Chart, Version string
	// Manifest is what the wanted chart and values render to here.
	Manifest string
	// Missing names the objects of Manifest that are not as it says.
	Missing []string
	// Now is the time, and Patience how long the operation of another program is believed to be
	// under way.
	Now      time.Time
	Patience time.Duration
}

// isNewer reports whether the version of a chart (https://semver.org) comes after another. One that is none
// comes after nothing.
func isNewer(version, than string) bool {
	v, err := semver.StrictNewVersion(version)
	if err != nil {
		return false
	}
	t, err := semver.StrictNewVersion(than)
	return err == nil && v.GreaterThan(t)
}

// Decide says what has to be done, and why, for people. It takes a pending operation of ours for
// one that was ended, as it is for who holds the Lease; without that it may be under way.
func Decide(f Facts) (act Act, why string) {
	s := f.State
	switch {
	case s.Revision == 0:
		return Install, "it is not installed"
	case s.Chart != "" && s.Chart != f.Chart:
		return Refuse, fmt.Sprintf("a release of that name is of chart %s: uninstall it, or name another namespace", s.Chart)
	case isNewer(s.Version, f.Version):
		return Refuse, fmt.Sprintf("it is of version %s, and this agentctl has %s: use the agentctl of that release, or go back with `helm rollback` first",
			s.Version, f.Version)
	case s.Status == common.StatusUninstalling:
		return Refuse, "it is being uninstalled: wait until `helm status` knows it no more, or end it: uninstall it again"
	case s.Status == common.StatusUninstalled:
		return Refuse, "it was uninstalled and its record kept: uninstall it again, by helm without --keep-history"
	case s.Status.IsPending() && !s.Ours && f.Now.Sub(s.Since) < f.Patience:
		return Refuse, fmt.Sprintf("another program has it %s since %s: wait until that is done, or %s after its begin",
			s.Status, s.Since.UTC().Format(time.RFC3339), f.Patience)
	case s.Status.IsPending():
		return Mend, fmt.Sprintf("revision %d was ended in the middle (%s)", s.Revision, s.Status)
	case s.Status != common.StatusDeployed:
		return Upgrade, fmt.Sprintf("revision %d is %s", s.Revision, s.Status)
	case s.Manifest != f.Manifest:
		return Upgrade, "chart or values differ"
	case len(f.Missing) > 0:
		return Upgrade, fmt.Sprintf("%d of its objects are not as they should be, the first %s", len(f.Missing), f.Missing[0])
	}
	return Keep, "nothing has to change"
}
