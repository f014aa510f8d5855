package release

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// State is what a namespace has of a release, by Helm's newest record of it.
type State struct {
	// Revision is the newest one. Zero means that there is none, and all else is empty.
	Revision int
	// Status is Helm's.
	Status common.Status
	// Chart and Version are of the chart.
	Chart, Version string
	// Values are those that were given at the last install or upgrade, without the chart's own.
	Values map[string]any
	// Manifest is what was applied.
	Manifest string
	// ServerSide says that it was applied by the API server, as Helm 4 does.
	ServerSide bool
	// Ours says that the last operation was begun by this package.
	Ours bool
	// Since is when that operation began.
	Since time.Time
}

// Observe reads the newest record of a release.
func (c *Client) Observe(name string) (State, error) {
	found, err := c.last(name)
	if err != nil || found == nil {
		return State{}, err
	}
	s := State{Revision: found.Version, Values: found.Config, Manifest: found.Manifest,
		ServerSide: found.ApplyMethod == "ssa"}
	s.Ours = found.Labels[revisionLabel] == strconv.Itoa(found.Version)
	if found.Info != nil {
		s.Status, s.Since = found.Info.Status, found.Info.LastDeployed
	}
	if found.Chart != nil && found.Chart.Metadata != nil {
		s.Chart, s.Version = found.Chart.Metadata.Name, found.Chart.Metadata.Version
	}
	return s, nil
}

// last returns the newest record; nil when there is none.
func (c *Client) last(name string) (*helmrelease.Release, error) {
	found, err := c.helm.Releases.Last(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read release %s of namespace %s: %w", name, c.cfg.Namespace, err)
	}
	r, ok := found.(*helmrelease.Release)
	if !ok {
		return nil, fmt.Errorf("release %s of namespace %s was written by a Helm that is not known here (%T)", name,
			c.cfg.Namespace, found)
	}
	return r, nil
}
