// Package release has a release of Helm be what is wanted: it installs, upgrades, mends and
// removes it with Helm's own code and records, so that `helm list`, `helm upgrade` and `helm
// rollback` of anyone else go on working.
//
//	client, err := release.New(release.Config{Getter: getter, Namespace: "argocd"})
//	plan, err := client.Plan(ctx, release.Desired{Name: charts.Agent, Chart: chart, Values: values})
//	err = client.Apply(ctx, plan)
//
// Nothing is written where nothing has to change: a plan that keeps everything is no new
// revision. What has to change is decided by [Decide] alone, from what is there.
//
// An operation runs under a Lease, so that a release that is pending while no one holds the
// Lease is known to be of a program that was ended in the middle: it is taken for failed, and
// upgraded. What another program than agentctl has pending is left to it for a while.
package release
