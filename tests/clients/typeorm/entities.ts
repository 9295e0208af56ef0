import { Column, Entity, JoinColumn, ManyToOne, OneToMany, PrimaryColumn, type Relation } from "typeorm";

@Entity("users")
export class User {
    @PrimaryColumn({ type: "bigint", default: () => "snowflake_next_id(5)" })
    id!: string;

    @Column("text")
    name!: string;

    @OneToMany(() => Photo, (photo) => photo.user)
    photos!: Relation<Photo[]>;
}

@Entity("photos")
export class Photo {
    @PrimaryColumn({ type: "bigint", default: () => "snowflake_next_id(5)" })
    id!: string;

    @ManyToOne(() => User, (user) => user.photos, { nullable: false })
    @JoinColumn({ name: "user_id" })
    user!: Relation<User>;

    @Column("text")
    caption!: string;
}
