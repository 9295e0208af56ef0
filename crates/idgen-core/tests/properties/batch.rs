use idgen_core::batch::{Batch, left};
use idgen_ids::Shard;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::shard;

#[derive(Clone, Debug)]
enum Step {
    Join(usize, i32, u64),
    Take(usize, u64),
    Leave(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6usize, 0..2i32, 1..1000u64).prop_map(|(who, of, count)| Step::Join(who, of, count)),
        (0..6usize, 0..500u64).prop_map(|(who, count)| Step::Take(who, count)),
        (0..6usize).prop_map(Step::Leave),
    ]
}

proptest! {
    /// The batches ahead of a batch are exactly those of its shard that joined earlier and have not left, in whatever
    /// order batches leave.
    #[test]
    fn batches_stand_in_the_order_in_which_they_joined(steps in vec(any_step(), 1..100)) {
        let queue = [const { Batch::none() }; 6];
        // The batches in the queues, in the order in which they joined, with the ids that they have left.
        let mut expected: Vec<(usize, Shard, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Join(who, of, count) => {
                    expected.retain(|(other, ..)| *other != who);
                    queue[who].leave();
                    queue[who].join(queue.iter(), shard(of), count, 0);
                    expected.push((who, shard(of), count));
                }
                Step::Take(who, count) => {
                    if let Some((.., left)) = expected.iter_mut().find(|(other, ..)| *other == who) {
                        *left = left.saturating_sub(count);
                        queue[who].took(count);
                    }
                }
                Step::Leave(who) => {
                    expected.retain(|(other, ..)| *other != who);
                    queue[who].leave();
                }
            }
            for of in [shard(0), shard(1)] {
                let mut sum = 0;
                for (who, _, left) in expected.iter().filter(|(_, other, _)| *other == of) {
                    prop_assert_eq!(queue[*who].ahead(queue.iter(), of), sum);
                    sum += left;
                }
                prop_assert_eq!(left(queue.iter(), of, 0), sum);
            }
        }
    }
}
