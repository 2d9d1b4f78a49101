package service

import "github.com/coordsvc/coordsvc/internal/coordination"

// Summary is the whole at a glance, from counts that are kept.
func (s *Service) Summary() Summary {
	sum := Summary{Peers: map[coordination.Status]int{}, Leader: s.Leader(), Parts: s.Health(), Revision: s.feed.revision.Load()}
	now := s.lock()
	defer s.mu.Unlock()
	sum.Now, sum.OpenClaims, sum.GraceUntil = now, s.core.OpenClaims(), s.core.GraceUntil(now)
	for _, v := range s.core.GroupViews() {
		sum.Groups = append(sum.Groups, GroupSummary{
			Group: v.Name, Peers: v.Peers, Overdue: v.Overdue, OpenOrphans: v.OpenOrphans, Conflicts: v.Conflicts,
			HeartbeatTimeout: v.Settings.HeartbeatTimeout, MassStaleUntil: v.MassStaleUntil, Shared: v.Settings.Shared,
		})
		for st, n := range v.Peers {
			sum.Peers[st] += n
		}
		sum.TotalPeers += v.Total
		sum.Overdue += v.Overdue
		sum.OpenOrphans += v.OpenOrphans
	}
	return sum
}

// Health reports the parts.
func (s *Service) Health() []PartHealth {
	return []PartHealth{s.store.Health(), s.opts.Bus.Health(), s.opts.Elector.Health()}
}

var _ Coordinator = (*Service)(nil)
