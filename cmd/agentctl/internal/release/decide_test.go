package release

import (
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	deployed := func(change func(*Facts)) Facts {
		f := Facts{
			State: State{Revision: 3, Status: common.StatusDeployed, Chart: "c", Manifest: "m", Since: now.Add(-time.Hour)},
			Chart: "c", Version: "1.10.0", Manifest: "m", Now: now, Patience: 5 * time.Minute,
		}
		change(&f)
		return f
	}
	pending := func(status common.Status, age time.Duration, ours bool) Facts {
		return deployed(func(f *Facts) { f.State.Status, f.State.Since, f.State.Ours = status, now.Add(-age), ours })
	}
	for name, c := range map[string]struct {
		facts Facts
		want  Act
		why   string
	}{
		"nothing is there":       {Facts{Chart: "c"}, Install, "not installed"},
		"all is as it should be": {deployed(func(*Facts) {}), Keep, "nothing"},
		"another manifest":       {deployed(func(f *Facts) { f.Manifest = "n" }), Upgrade, "differ"},
		"an object that is gone": {deployed(func(f *Facts) { f.Missing = []string{"Role a", "Role b"} }), Upgrade,
			"2 of its objects are not as they should be, the first Role a"},
		"a failed upgrade":      {pending(common.StatusFailed, 0, false), Upgrade, "failed"},
		"a superseded revision": {pending(common.StatusSuperseded, 0, false), Upgrade, "superseded"},
		"our install that was ended": {pending(common.StatusPendingInstall, time.Second, true), Mend,
			"pending-install"},
		"our upgrade that was ended": {pending(common.StatusPendingUpgrade, time.Second, true), Mend,
			"pending-upgrade"},
		"our rollback that was ended": {pending(common.StatusPendingRollback, time.Second, true), Mend,
			"pending-rollback"},
		"an upgrade of helm, under way": {pending(common.StatusPendingUpgrade, 5*time.Minute-1, false), Refuse,
			"another program has it pending-upgrade since 2026-11-28T11:55:00Z"},
		"an upgrade of helm, long ago": {pending(common.StatusPendingUpgrade, 5*time.Minute, false), Mend,
			"ended in the middle"},
		"an uninstall": {pending(common.StatusUninstalling, time.Hour, true), Refuse,
			"being uninstalled"},
		"a history that was kept": {pending(common.StatusUninstalled, time.Hour, true), Refuse, "--keep-history"},
		"another chart": {deployed(func(f *Facts) { f.State.Chart = "other" }), Refuse,
			"of chart other"},
		"a newer version": {deployed(func(f *Facts) { f.State.Version = "1.11.0-rc.1" }), Refuse,
			"of version 1.11.0-rc.1, and this agentctl has 1.10.0: use the agentctl of that release"},
		"a newer version that was ended": {deployed(func(f *Facts) {
			f.State.Version, f.State.Status, f.State.Ours = "2.0.0", common.StatusPendingUpgrade, true
		}), Refuse, "of version 2.0.0"},
		"an older version":           {deployed(func(f *Facts) { f.State.Version, f.Manifest = "1.9.0", "n" }), Upgrade, "differ"},
		"a candidate of the version": {deployed(func(f *Facts) { f.State.Version, f.Manifest = "1.10.0-rc.1", "n" }), Upgrade, "differ"},
		"a version that is none":     {deployed(func(f *Facts) { f.State.Version, f.Manifest = "newest", "n" }), Upgrade, "differ"},
		"another chart that is also pending": {deployed(func(f *Facts) {
			f.State.Chart, f.State.Status = "other",
				common.StatusPendingInstall
		}), Refuse, "of chart other"},
	} {
		t.Run(name, func(t *testing.T) {
			if act, why := Decide(c.facts); act != c.want || !strings.Contains(why, c.why) {
				t.Errorf("Decide() = %s, %q; want %s with %q", act, why, c.want, c.why)
			}
		})
	}
}
